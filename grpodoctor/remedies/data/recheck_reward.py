"""Whether the reward means what it should."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.remedies.base import Remedy, Watch
from grpodoctor.vocabulary.knobs import Setting


class RecheckReward(Remedy):
    """Look at what the reward function rewards.

    What it does:
        A reward that is always 0, always 1, or rises while held-out accuracy falls says more about
        the reward function than about the policy: a parser that rejects right answers, components
        that cancel, a rule that can be satisfied without solving anything.

    What it costs:
        An hour of a person. Every other remedy is wasted while the reward is wrong.

    What it overlaps:
        Nothing; it comes before all the others.

    How it is judged:
        By a person: the share of responses on which the reward and a reader disagree. Afterwards
        held-out accuracy rises together with the reward.

    References:
        Gao et al. 2022, Scaling Laws for Reward Model Overoptimization, arXiv 2210.10760.
    """

    id = "recheck-reward"
    title = "Check the reward function by hand"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Watch("accuracy/heldout", "up")
    paper = "Gao et al. 2022, arXiv 2210.10760"
    how = (
        "Print twenty responses with the highest and twenty with the lowest reward, each with "
        "its components and the reference answer. Judge them by eye; call the reward function "
        "on a known right and a known wrong answer."
    )

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:  # noqa: ARG002 - a person acts
        """Nothing: no knob stands for it."""
        return {}
