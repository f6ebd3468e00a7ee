"""Causes in the tokens that the two sides see."""
