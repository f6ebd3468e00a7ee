"""Losses, advantages, corrections and the other published variants of GRPO."""
