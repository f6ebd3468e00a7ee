"""Built-in verifiable tasks, one a file."""
