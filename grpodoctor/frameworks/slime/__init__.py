"""slime (and miles)."""
