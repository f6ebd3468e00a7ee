"""M2PO: a second-moment trust region for stale samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class M2po(Remedy):
    """Mask the tokens with the largest ratios until their second moment is below 0.04: M2PO.

    What it does:
        A clip at 0.2 drops many tokens of old samples, mostly informative ones. M2PO bounds the
        mean of the squared log-ratio over the batch instead, and masks only as many extreme tokens
        as that bound requires.

    When it applies:
        Samples are many updates old by design, and the clip drops a large share of them.

    What it costs:
        The bound is one more setting. With fresh samples it masks nothing.

    What it overlaps:
        Every other trust region: PPO's clip, GSPO, CISPO, SAPO.

    How it is judged:
        By a person, after the restart: fewer tokens are masked at the same staleness, and the
        reward rises.

    References:
        Prosperity before Collapse: How Far Can Off-Policy RL Reach with Stale Data on LLMs? arXiv
        2510.01161.
    """

    id = "m2po"
    title = "Use M2PO: second-moment trust region for stale samples"
    applicability = "suggest"
    in_flight = False
    slots = ("trust-region",)
    target = Criterion("clip/any_rate", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    paper = "M2PO, arXiv 2510.01161"
    how = (
        "Restart with M2PO's bound of 0.04 on the second moment. Without it in your framework, "
        "bound the staleness (`limit-staleness`) or use `cispo`."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {"loss": "m2po"}
