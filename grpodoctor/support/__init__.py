"""Shared plumbing: files, processes, module discovery, progress bars, safe text."""
