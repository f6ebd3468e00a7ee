"""Advantages: one pure function a file, found by its name."""
