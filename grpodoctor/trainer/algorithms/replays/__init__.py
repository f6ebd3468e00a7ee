"""Routing replay in mixtures of experts, one variant per file."""
