"""Forks: a treated and an untreated branch of a run from one checkpoint, compared in pairs."""
