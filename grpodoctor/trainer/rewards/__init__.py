"""Reward functions: loading, calling, checking, mixing."""
