"""Data sets by name: where they come from, and the experiments drawn from them."""
