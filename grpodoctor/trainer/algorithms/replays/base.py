"""Inputs and output of a routing replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class KnownExperts(NamedTuple):
    """The known experts of a batch, int16, shape (B, L, D, K)."""

    sampler: Tensor | None
    """Of the sampling engine; None if it does not report them."""
    old: Tensor | None
    """Of the learner when it scored the batch; None before that."""


Replay = Callable[[KnownExperts], Tensor | None]
"""Returns the experts that the learner must use in its next pass; None for no constraint."""
