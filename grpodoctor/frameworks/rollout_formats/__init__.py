"""Readers for the file formats of rollout dumps, shared by all frameworks."""
