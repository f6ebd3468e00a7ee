"""Remedies that change the loss mask or the denominator."""
