"""Losses, one file each: the settings class, the loss function and its page (the docstring)."""
