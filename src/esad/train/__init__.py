"""The one training loop and what plugs into it."""
