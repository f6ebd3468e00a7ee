"""What a routing replay is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class KnownExperts(NamedTuple):
    """The experts of a batch as far as they are known, int16, shape (B, L, D, K)."""

    sampler: Tensor | None
    """Of the engine that sampled; None if it does not tell."""
    old: Tensor | None
    """Of the learner when it scored the batch; None before it has."""


Replay = Callable[[KnownExperts], Tensor | None]
"""Which experts the learner is held to in its next pass; None leaves its routers free."""
