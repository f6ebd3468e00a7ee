"""Remedies that change how responses are sampled."""
