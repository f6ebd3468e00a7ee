"""LEN: response length and truncation."""
