"""Reweightings: weights of single tokens within a response's advantage, one file each."""
