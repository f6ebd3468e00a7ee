"""Advantages: one pure function per file, found by name; the docstring is the page."""
