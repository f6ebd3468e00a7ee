"""Checks of the reward function."""
