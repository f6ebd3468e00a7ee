"""Applies remedies to a live run: one at a time, then wait, then keep or undo."""
