"""The report of a probe, translated to a view."""
