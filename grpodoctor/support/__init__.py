"""Plumbing that every package may use: files, processes, module discovery, safe text."""
