"""Sampled responses, and statistics of their pass rates."""
