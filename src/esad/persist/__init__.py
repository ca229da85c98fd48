"""Model files: safetensors + JSON in one stored zip, never pickle."""
