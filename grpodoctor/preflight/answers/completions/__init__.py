"""Completions built from answers, and the relations that their rewards must have."""
