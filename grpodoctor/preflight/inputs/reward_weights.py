"""The weights of the reward functions in the run's config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

UNNAMED = "function "
"""Beginning of the names of functions that the config does not name."""
_SPLIT = re.compile(r"[\s,]+")


def reward_weights(settings: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Name and weight of each reward function of a TRL or ms-swift config; empty without weights.

    Args:
        settings: the config: lists, or texts as on a command line.
    """
    values = [_number(each) for each in _items(settings.get("reward_weights"))]
    weights = [value for value in values if value is not None]
    names = [str(each) for each in _items(settings.get("reward_funcs"))]
    if len(weights) != len(values):
        return ()
    if len(names) != len(weights):
        names = [f"{UNNAMED}{at}" for at in range(1, len(weights) + 1)]
    return tuple(zip(names, weights, strict=True))


def _items(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    text = value.strip("[] ") if isinstance(value, str) else ""
    return [each.strip("'\"") for each in _SPLIT.split(text)] if text else []


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None
