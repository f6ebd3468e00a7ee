"""Tasks: built-in ones, and prompts and answers from files."""
