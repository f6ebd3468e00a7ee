"""Remedies for a sampling engine that disagrees with the learner."""
