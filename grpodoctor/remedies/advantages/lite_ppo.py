"""LitePPO: group mean and batch standard deviation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class LitePpo(Remedy):
    """Divide by the standard deviation of the batch instead of the group, per token.

    What it does:
        A group's standard deviation from few responses is noisy, and near 0 for prompts that are
        nearly always or never solved, whose advantages it inflates. The batch's standard deviation
        is steady and the same for all prompts.

    When it applies:
        Groups are small, or most prompts are very easy or very hard.

    What it costs:
        Prompts with a small spread of rewards get little gradient.

    What it overlaps:
        Every other advantage estimator; Dr. GRPO's denominator.

    How it is judged:
        The largest advantage falls, or the reward rises. Guard: the reward does not fall.

    References:
        Tricks or Traps? A Deep Dive into RL for LLM Reasoning, arXiv 2508.08221.
    """

    id = "lite-ppo"
    title = "Use LitePPO: batch standard deviation, token-level loss"
    applicability = "unsafe"
    in_flight = True
    slots = ("advantage", "denominator")
    target = Criterion("advantage/abs_max", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "LitePPO, arXiv 2508.08221"
    alternatives = ("gopo",)
    settings: ClassVar[Mapping[str, Setting]] = {
        "advantage": "batch_std",
        "aggregation": "token-mean",
    }

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set what differs if advantages are relative to the group."""
        return super().change(knobs) if knobs.get("advantage") in ("group", "centred") else {}
