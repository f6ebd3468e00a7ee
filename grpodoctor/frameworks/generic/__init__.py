"""Logs of no known framework, read by generic key names."""
