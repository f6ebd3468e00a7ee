"""IcePop: a two-sided mask of tokens between sampler and learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class IcePop(Remedy):
    """Drop tokens whose correction weight is outside 0.5 to 5, and weight the others: IcePop.

    What it does:
        In a mixture of experts, one token that is routed to other experts has a weight far from 1
        in either direction. IcePop drops such tokens and keeps the weight of all others. Unlike
        TIS, it also drops tokens that the learner finds far less likely than the sampler.

    When it applies:
        The mismatch is concentrated in few tokens: the mean gap is small, the largest is not. This
        is typical of mixtures of experts.

    What it costs:
        Samples: dropped tokens contribute no gradient. The paper counts them in the denominator;
        verl's rejection sampling does not.

    What it overlaps:
        Every other correction of the same ratio: TIS, MIS, losses anchored on the sampler. Routing
        replay removes the cause.

    How it is judged:
        By a person, after the restart: the gradient norm has no spikes, and the reward rises.

    References:
        Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale Thinking Model
        (Ring-1T), arXiv 2510.18855.
    """

    id = "icepop"
    title = "Use IcePop: two-sided token mask between sampler and learner"
    applicability = "suggest"
    in_flight = False
    slots = ("engine-correction", "old-policy")
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("optimizer/grad_norm", "down"),)
    paper = "IcePop, arXiv 2510.18855"
    how = (
        "Restart with old log-probabilities from the learner and tokens masked outside 0.5 to 5. "
        "Watch the masked share: above a few percent, the engine needs repair instead "
        "(`grpodoctor probe`)."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {
        "old_logprobs": "recompute",
        "correction": "icepop",
    }
