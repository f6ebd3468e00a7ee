"""Causes in the weights of one side."""
