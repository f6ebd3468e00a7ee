"""Reweightings: what a token's advantage weighs beside its response's, one file each."""
