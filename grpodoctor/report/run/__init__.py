"""The report of a run in each output format."""
