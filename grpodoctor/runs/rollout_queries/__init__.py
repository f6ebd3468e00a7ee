"""Searching the recorded responses of a run without loading their texts."""
