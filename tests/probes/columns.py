"""Columns of responses as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def joined(responses: Sequence[Any], name: str = "") -> np.ndarray:
    """A column of all responses, one after the other; without a name, the log-probabilities."""
    return np.concatenate([each.extras[name] if name else each.logprobs for each in responses])
