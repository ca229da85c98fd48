"""From scores to decisions: thresholds and metrics."""
