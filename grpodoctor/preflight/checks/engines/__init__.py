"""Checks that compare engines, and of memory."""
