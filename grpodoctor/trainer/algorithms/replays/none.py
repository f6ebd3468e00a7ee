"""No replay: every pass of the learner is routed by its own routers.

Formula
    A token's experts are those of the K largest of the router's current logits.

Denominator
    Not touched.

Settings
    None.

Effect on metrics
    Nothing.

Other implementations
    The default of every library.

Do not combine with
    Everything goes with it.

Source
    None.
"""

from __future__ import annotations

from torch import Tensor

from grpodoctor.trainer.algorithms.replays.base import KnownExperts


def none(_known: KnownExperts) -> Tensor | None:
    """No experts at all."""
    return None
