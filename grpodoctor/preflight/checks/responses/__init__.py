"""Checks of sampled responses."""
