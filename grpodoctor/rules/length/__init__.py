"""LEN: length and truncation."""
