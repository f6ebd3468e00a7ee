"""Remedies for truncated or overlong responses."""
