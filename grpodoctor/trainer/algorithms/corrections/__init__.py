"""Corrections of the sampler-learner mismatch: one pure function a file, found by its name.

The file's docstring is its page.
"""
