"""Losses with one importance ratio or one term per response."""
