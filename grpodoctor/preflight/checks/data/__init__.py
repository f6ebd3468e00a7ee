"""Checks of the prompts and answers."""
