"""The losses and the properties that rules, remedies and the trainer need to know about them.

The trainer's registry has the same names; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class LossTraits(NamedTuple):
    """Properties of a loss that decide how its metrics are read."""

    ratio_per_response: bool = False
    """One ratio for all tokens of a response: clip rates count responses, and a few rerouted
    experts hardly change the ratio."""
    bounds_weights: bool = False
    """The bound limits a token's weight and keeps its gradient, so it is not a clip."""
    handles_router_shift: bool = False
    """Designed for a mixture of experts whose routing changes between updates."""


LOSSES: Mapping[str, LossTraits] = {
    "ppo_clip": LossTraits(),
    "reinforce": LossTraits(),
    "gspo": LossTraits(ratio_per_response=True, handles_router_shift=True),
    "gspo_token": LossTraits(ratio_per_response=True, handles_router_shift=True),
    "luspo": LossTraits(ratio_per_response=True, handles_router_shift=True),
    "gmpo": LossTraits(),
    "cispo": LossTraits(bounds_weights=True),
    "scalerl": LossTraits(bounds_weights=True),
    "sapo": LossTraits(),
    "vespo": LossTraits(),
    "dppo_binary_tv": LossTraits(),
    "dppo_binary_kl": LossTraits(),
    "dppo_topk_tv": LossTraits(),
    "dppo_topk_kl": LossTraits(),
    "ipo": LossTraits(),
    "m2po": LossTraits(),
    "dcpo": LossTraits(),
    "minirl": LossTraits(),
    "clip_cov": LossTraits(),
    "kl_cov": LossTraits(),
    "sequence_clip": LossTraits(ratio_per_response=True),
    "rspo": LossTraits(handles_router_shift=True),
}
"""Every loss by name, in the order that messages list them."""


def traits_of(loss: object) -> LossTraits:
    """The traits of a loss; those of a token-level loss if the name is unknown or not logged."""
    return LOSSES.get(loss, LossTraits()) if isinstance(loss, str) else LossTraits()
