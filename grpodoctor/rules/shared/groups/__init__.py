"""What the groups of a batch have in common."""
