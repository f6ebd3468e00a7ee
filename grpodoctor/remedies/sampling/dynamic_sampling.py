"""Dynamic sampling: zero-variance groups are replaced by new ones."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Criterion, Readings, Remedy, Requirement
from grpodoctor.vocabulary.knobs import Setting

_ZERO_VARIANCE = ("groups/zero_variance_rate", "groups/zero_variance_rate/inferred")


class DynamicSampling(Remedy):
    """Keep sampling until every group of the batch has reward variance.

    What it does:
        A group whose responses all have the same reward has advantages of zero and contributes no
        gradient. Such groups are dropped and others are sampled instead, up to a limited number of
        rounds.

    When it applies:
        Some groups have variance and many do not. If hardly any has, sampling stops at its limit.

    What it costs:
        Sampling: with a share z of zero-variance groups, 1 / (1 - z) times as many groups are
        generated. It does not help if hardly any group has variance: sampling then stops at the
        limit of rounds, and the batch is used as it is. With a critic as the baseline, such groups
        contribute gradient like any other, and the remedy changes nothing.

    What it overlaps:
        Every other treatment of zero-variance groups: plain filtering, active sampling. Metrics
        over the kept groups alone are biased: accuracy is pulled toward one half.

    How it is judged:
        The share of loss tokens with an advantage of zero falls. Guards: a step takes at most four
        times as long, and the reward of the kept groups does not collapse.

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.2.
    """

    id = "dynamic-sampling"
    title = "Replace zero-variance groups by new ones"
    applicability = "safe"
    in_flight = True
    slots = ("zero-signal",)
    target = Criterion("advantage/zero_rate", "down")
    more_targets = (Criterion("groups/zero_variance_rate", "down"),)
    # Kept groups have mixed rewards, so their mean reward moves toward the middle by construction.
    guards = (Criterion("time/step", "up", 3.0), Criterion("reward/mean", "down", 0.5))
    paper = "DAPO, arXiv 2503.14476"
    alternatives = ("refilter-prompts", "reinforce-rej")
    acts_on = Requirement(
        _ZERO_VARIANCE, "no group has zero variance", wanted="some groups have zero variance"
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Switch `dynamic_sampling` on if it is known to be off and groups are the baseline."""
        if knobs.get("advantage") == "gae":  # a critic learns from every group
            return {}
        return {"dynamic_sampling": True} if knobs.get("dynamic_sampling") is False else {}

    def obstacle(self, knobs: Mapping[str, Setting], readings: Readings) -> str:
        """Groups are not the baseline, or hardly any group has variance."""
        if knobs.get("advantage") == "gae":
            return "the run has a critic, which learns from every group"
        rates = [readings[name] for name in _ZERO_VARIANCE if name in readings]
        if max(rates, default=0.0) > 0.95:  # twenty groups for each kept one
            return "hardly any group has variance, so sampling would stop at its limit"
        return "no group has zero variance" if rates and not any(rates) else ""
