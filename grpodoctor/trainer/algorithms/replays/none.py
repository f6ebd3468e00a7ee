"""No replay: the learner's own routers decide in every pass.

Formula
    A token's experts are those with the K largest current router logits.

Denominator
    Unchanged.

Settings
    None.

Effect on metrics
    None.

Other implementations
    The default of every library.

Do not combine with
    No conflict.

Source
    None.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.replays.base import KnownExperts


def none(_known: KnownExperts) -> Tensor | None:
    """No constraint."""
    return None
