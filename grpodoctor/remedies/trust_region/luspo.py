"""LUSPO: GSPO without its length bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Luspo(Remedy):
    """Scale GSPO's response terms by their length: LUSPO.

    What it does:
        GSPO divides each response's log-ratio by its length and gives every response the same
        weight, so a token of a long response counts less than one of a short response. LUSPO
        multiplies by the length again. Responses then grow where longer reasoning is rewarded.

    When it applies:
        The run uses GSPO, and responses shrink although the reward does not ask for it.

    What it costs:
        Long responses have more weight, correct or not.

    What it overlaps:
        GSPO and GMPO, which it replaces; PPO's clip; denominators.

    How it is judged:
        By a person, after the restart: the length no longer falls and the reward rises.

    References:
        Length-Unbiased Sequence Policy Optimization, arXiv 2602.05261.
    """

    id = "luspo"
    title = "Use LUSPO: GSPO without length bias"
    applicability = "suggest"
    in_flight = False
    slots = ("trust-region", "denominator")
    target = Criterion("length/mean", "toward-baseline")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "LUSPO, arXiv 2602.05261"
    how = (
        "Restart with LUSPO and the bounds of its paper, 0.002 and 0.0025. Without it in your "
        "framework, keep GSPO and raise the weight of long responses with the token-level "
        "denominator."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {
        "loss": "luspo",
        "clip_low": 0.002,
        "clip_high": 0.0025,
    }
