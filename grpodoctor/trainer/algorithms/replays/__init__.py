"""Routing replay in mixtures of experts, one variant a file."""
