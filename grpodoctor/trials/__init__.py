"""Runs with a fault, treated and untreated, that test rules and remedies."""
