"""Texts of run configs with other values."""

from __future__ import annotations


def with_settings(config: str, changes: dict[str, object]) -> str:
    """A flat YAML config with other and further settings."""
    lines = [line for line in config.strip().splitlines() if line.split(":")[0] not in changes]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in changes.items())]) + "\n"
