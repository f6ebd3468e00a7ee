"""What-if edits, and the causes that they stand for."""
