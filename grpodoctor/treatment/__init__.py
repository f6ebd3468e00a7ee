"""Applying remedies to a live run: one at a time, wait, keep or undo."""
