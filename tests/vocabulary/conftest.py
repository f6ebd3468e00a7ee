"""Disable Hypothesis's deadline, because a shared machine slows single examples at random."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
