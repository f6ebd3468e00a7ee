"""Remedies that change the loss."""
