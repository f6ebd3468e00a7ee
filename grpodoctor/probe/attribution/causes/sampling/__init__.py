"""Causes in the distribution that tokens are drawn from or reported under."""
