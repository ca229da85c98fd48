"""Tables and pictures in: reading, describing, splitting and labelling data."""
