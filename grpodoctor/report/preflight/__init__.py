"""The report of a preflight, translated to a view."""
