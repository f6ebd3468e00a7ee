"""Losses, advantages, corrections and other published variants of GRPO."""
