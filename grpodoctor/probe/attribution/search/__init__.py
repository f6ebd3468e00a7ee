"""Searches for the edits, the tensors and the responses that explain a gap, and their selection."""
