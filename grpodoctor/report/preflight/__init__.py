"""The preflight report in each output format."""
