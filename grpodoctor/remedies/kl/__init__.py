"""Remedies for the KL penalty and its reference."""
