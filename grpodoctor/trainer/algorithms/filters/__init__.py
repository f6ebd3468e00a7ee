"""Filters: which prompts are drawn and which responses are trained on, one file each."""
