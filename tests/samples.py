"""Test parameters: `make test` tries a sample of them, `make test-slow` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], quick: Collection[Any] | int) -> list[Any]:
    """Mark the values outside the sample as slow.

    Args:
        values: the values of a parameter, in a fixed order.
        quick: the sample, or one of how many values belongs to it.
    """

    def is_quick(number: int, value: Any) -> bool:
        return number % quick == 0 if isinstance(quick, int) else value in quick

    return [
        value if is_quick(number, value) else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]
