"""Corrections of the engine mismatch: one pure function per file, found by name.

The docstring of the file is the page.
"""
