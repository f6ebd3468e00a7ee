"""Causes in how log-probabilities are reported: units, rounding, order."""
