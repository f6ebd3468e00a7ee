"""Remedies for the routing of a mixture of experts."""
