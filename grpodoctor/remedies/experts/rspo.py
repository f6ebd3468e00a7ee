"""RSPO: less weight on tokens whose routing shifted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Rspo(Remedy):
    """Give less weight to tokens whose experts shifted since sampling: RSPO.

    What it does:
        Between the start of a batch and its last update, routers change. The ratio of a token then
        mixes a change of the policy with a change of its route. RSPO measures the shift of the gate
        scores and multiplies the token's ratio by a factor between 0.8 and 1.

    When it applies:
        A mixture of experts whose routing changes between updates, without routing replay.

    What it costs:
        The old gate scores of all tokens and layers are kept. The floor of 0.8 is not confirmed by
        the paper.

    What it overlaps:
        Routing replay (R2 and R3), which removes the shift; GSPO and GMPO, because RSPO has its
        own geometric mean.

    How it is judged:
        By a person, after the restart: fewer bursts of clipped tokens, and the reward rises.

    References:
        Towards Stable and Effective Reinforcement Learning for Mixture-of-Experts, arXiv
        2510.23027.
    """

    id = "rspo"
    title = "Use RSPO: less weight on tokens with shifted routing"
    applicability = "suggest"
    in_flight = False
    slots = ("expert-routing", "trust-region", "denominator")
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("clip/any_rate", "down"),)
    paper = "RSPO, arXiv 2510.23027"
    how = "Restart with RSPO. No other trainer has it yet; use routing replay or GSPO there."
    restart_with: ClassVar[Mapping[str, Setting]] = {"loss": "rspo"}
