"""Hypothesis without its stopwatch: a shared machine makes single examples slow at random."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
