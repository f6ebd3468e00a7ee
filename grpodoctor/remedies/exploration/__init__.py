"""Remedies that keep the policy exploring."""
