"""Semi-supervised anomaly detection."""

__version__ = "0.1.0"
