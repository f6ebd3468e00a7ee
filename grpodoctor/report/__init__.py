"""The same findings as terminal, JSON, Markdown and HTML."""
