"""Losses that clip or gate each token's importance ratio."""
