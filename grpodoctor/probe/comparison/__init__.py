"""Compare two engines on the same tokens."""
