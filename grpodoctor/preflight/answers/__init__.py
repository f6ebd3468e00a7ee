"""Answers of the data, completions built from them, and their rewards."""
