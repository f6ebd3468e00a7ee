"""Remedies that change the trust region: which tokens a batch may still move, and how far."""
