"""Files in and out: CSV, Parquet, pictures, streams of them, and the scores file."""
