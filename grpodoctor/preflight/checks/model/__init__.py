"""Checks of the model's configuration."""
