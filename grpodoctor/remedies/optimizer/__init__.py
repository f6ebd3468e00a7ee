"""Remedies that change the size of the updates, or stop the run."""
