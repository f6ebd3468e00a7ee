"""The sensible ranges of a rule's thresholds, for the values that a user configures."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_SHARE = re.compile(r"(?:^|_)share(?:_|$)")
_SIGNED_SHARE = re.compile(r"(?:^|_)correlation(?:_|$)")


class ThresholdRange(NamedTuple):
    """The values that a threshold may have."""

    low: float
    high: float = math.inf

    def excludes(self, value: float) -> bool:
        """Whether a value is outside; NaN always is."""
        return not self.low <= value <= self.high

    @property
    def words(self) -> str:
        """The range as the end of a sentence."""
        if math.isinf(self.high):
            return "any number" if math.isinf(self.low) else f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"


def range_of(name: str, default: float) -> ThresholdRange:
    """The range of a threshold, by its name and its default.

    A share is part of a whole, and a correlation has two signs. Other thresholds that are positive
    by default are counts, multiples and distances. One that is not may have either sign.
    """
    if _SHARE.search(name):
        return ThresholdRange(0, 1)
    if _SIGNED_SHARE.search(name):
        return ThresholdRange(-1, 1)
    return ThresholdRange(0 if default > 0 else -math.inf)
