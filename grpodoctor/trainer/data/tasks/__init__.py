"""Built-in verifiable tasks, one per file."""
