"""The report of a run, translated to a view."""
