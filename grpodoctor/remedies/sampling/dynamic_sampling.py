"""Dynamic sampling: groups without variance are replaced by fresh ones."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class DynamicSampling(Remedy):
    """Keep sampling until every group of the batch has variance in its reward.

    What it does:
        A group whose responses all have the same reward has advantages of zero and adds nothing to
        the gradient but noise in its size. Such groups are dropped and others are drawn in their
        place, up to a bounded number of rounds.

    What it costs:
        Sampling: at a share z of groups without variance, 1 / (1 - z) times as many groups are
        generated. It cannot help where hardly any group has variance: then the bound on the rounds
        is reached and the batch is used as it is. With a critic as the baseline such groups teach
        like any other, and nothing is changed.

    What it overlaps:
        Every other treatment of groups without signal: plain filtering, active sampling. Figures
        over the kept groups alone are biased: accuracy is pulled toward one half.

    How it is judged:
        The share of loss tokens with an advantage of zero falls. Guards: the step does not take
        more than four times as long, the reward of the kept groups does not collapse.

    References:
        DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476,
        section 3.2.
    """

    id = "dynamic-sampling"
    title = "Replace groups without variance by fresh ones"
    applicability = "safe"
    in_flight = True
    slots = ("zero-signal",)
    target = Watch("advantage/zero_rate", "down")
    also = (Watch("groups/zero_variance_rate", "down"),)
    # Kept groups have mixed outcomes, so their mean reward moves toward the middle by construction.
    guards = (Watch("time/step", "up", 3.0), Watch("reward/mean", "down", 0.5))
    paper = "DAPO, arXiv 2503.14476"

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Switch `dynamic_sampling` on, where it is known to be off and groups are the baseline."""
        if knobs.get("advantage") == "gae":  # a critic learns from every group
            return {}
        return {"dynamic_sampling": True} if knobs.get("dynamic_sampling") is False else {}
