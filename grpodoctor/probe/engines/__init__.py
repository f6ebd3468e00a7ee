"""Runs engine programs, validates their output, and stores it."""
