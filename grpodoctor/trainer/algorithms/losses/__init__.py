"""Losses: one pure function a file, found by its name; the file's docstring is its page."""
