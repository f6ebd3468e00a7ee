"""Helpers that several rules share."""
