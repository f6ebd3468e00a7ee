"""Logs of no known framework, read by their plain names."""
