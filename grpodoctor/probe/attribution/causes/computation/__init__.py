"""Causes in the way an engine computes."""
