"""Masked importance sampling between sampler and learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Mis(Remedy):
    """Drop responses whose correction weight is above 2, and weight the others: MIS.

    What it does:
        The weight of a response is the product of learner probability divided by sampler
        probability over its tokens. TIS caps a large weight; MIS drops the response, because a
        weight far above 1 often means that one engine made an error. The per-token form drops
        single tokens instead of responses.

    When it applies:
        The engines disagree on few responses, and TIS leaves spikes of the gradient. With long
        responses the product exceeds 2 in most of them; then use the per-token form or
        `sequence-error-mask`.

    What it costs:
        Samples: dropped responses were paid for. It biases the gradient against long responses,
        whose products scatter more.

    What it overlaps:
        Every other correction of the same ratio: TIS, IcePop, losses anchored on the sampler.

    How it is judged:
        Ratios are 1 again before the first update of a batch, or the reward rises. Guard: the
        reward does not fall.

    References:
        Liu, Li et al. 2025, When Speed Kills Stability (richardli.xyz/rl-collapse); arXiv
        2512.23075 (trust-region masking).
    """

    id = "mis"
    title = "Mask responses whose importance weight is above 2 (MIS)"
    applicability = "unsafe"
    in_flight = True
    slots = ("engine-correction", "old-policy")
    target = Criterion("mismatch/first_ratio_off", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "Liu, Li et al. 2025, When Speed Kills Stability"
    settings: ClassVar[Mapping[str, Setting]] = {
        "old_logprobs": "recompute",
        "correction": "mis_sequence",
        "correction_cap": 2.0,
    }
    requires: ClassVar[Mapping[str, Setting]] = {"correction": "none"}
