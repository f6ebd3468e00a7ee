"""Remedies that change how rewards become advantages."""
