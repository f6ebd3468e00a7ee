"""Files: atomic, growing, compressed, remote and locked ones; bounded reading."""
