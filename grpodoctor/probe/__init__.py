"""Two engines on the same tokens: how far they differ, and why."""
