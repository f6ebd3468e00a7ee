"""Losses that treat the tokens with the largest covariance separately."""
