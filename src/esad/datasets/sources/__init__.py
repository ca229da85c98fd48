"""Data sets by name, one file per family."""
