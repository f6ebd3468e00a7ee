"""Checks of the chat template and the end tokens."""
