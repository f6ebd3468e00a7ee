"""VESPO: a soft weight per response for stale samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Vespo(Remedy):
    """Weight whole responses by a soft function of their importance weight: VESPO.

    What it does:
        The importance weight of a response is a product over its tokens, so it is soon huge or
        tiny. VESPO maps it to a bounded, smooth weight that is largest near 1 and decays on both
        sides, with other shapes for positive and negative advantages.

    When it applies:
        Samples are several updates old, and ratios of whole responses scatter over orders of
        magnitude.

    What it costs:
        Four shape parameters. It combines with sequence-level corrections of the engine only in
        some frameworks.

    What it overlaps:
        PPO's clip, GSPO, CISPO, SAPO. Its weight includes the engine's mismatch if it is anchored
        on the sampler.

    How it is judged:
        By a person, after the restart: the reward rises at the same staleness.

    References:
        VESPO, arXiv 2602.10693..
    """

    id = "vespo"
    title = "Use VESPO: soft weights of whole responses"
    applicability = "suggest"
    in_flight = False
    slots = ("trust-region",)
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("ratio/max", "down"),)
    paper = "VESPO, arXiv 2602.10693."
    how = (
        "Restart with VESPO and its published shape: k 2 and lambda 3 for positive, k 3 and "
        "lambda 2 for negative advantages."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"loss": "vespo"}
