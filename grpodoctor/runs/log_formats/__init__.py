"""Log formats: one module per file format, each with a reader of its rows."""
