"""Experiments: from a file that describes them, over a store of results that survives a crash, to tables."""
