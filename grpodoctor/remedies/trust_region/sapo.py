"""SAPO: a smooth gate instead of a clip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Sapo(Remedy):
    """Fade tokens out smoothly as their ratio leaves 1: SAPO.

    What it does:
        A clip keeps a token at full weight and then drops it. SAPO weights tokens by a bell-shaped
        gate around a ratio of 1, a little narrower for negative advantages, which disturb more of
        the vocabulary. Gradients change smoothly as the policy moves.

    When it applies:
        Tokens are clipped, or the gradient jumps between updates of one batch.

    What it costs:
        The gate has no hard bound, so a very large step still contributes a little. Tuned clip
        bounds no longer matter.

    What it overlaps:
        PPO's clip, clip-higher, CISPO, GSPO, VESPO.

    How it is judged:
        By a person, after the restart: the gradient norm is steadier and the reward rises.

    References:
        Soft Adaptive Policy Optimization, arXiv 2511.20347.
    """

    id = "sapo"
    title = "Use SAPO: a smooth gate instead of the clip"
    applicability = "suggest"
    in_flight = False
    slots = ("trust-region",)
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("optimizer/grad_norm", "down"),)
    paper = "SAPO, arXiv 2511.20347"
    how = (
        "Restart with SAPO and its published temperatures: 1.0 for positive and 1.05 for negative"
        " advantages."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"loss": "sapo"}
