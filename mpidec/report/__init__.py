"""A page that compares runs: their learning curves, bytes, seconds and final numbers."""
