"""Remedies that change the prompts or the reward."""
