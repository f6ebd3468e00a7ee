"""MaxRL: advantages divided by the group's mean reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class MaxRl(Remedy):
    """Divide centered rewards by the group's mean: MaxRL.

    What it does:
        The advantage is (reward - mean) / mean, and 0 where no response is correct. A prompt that
        is solved by one response in sixteen weighs sixteen times as much as one that is always
        solved. This maximizes the likelihood of correct answers rather than their average rate.

    When it applies:
        Pass rates are low, so that prompts with one correct response in a group carry most of what
        can be learned. Rewards must not be negative.

    What it costs:
        The gradient has more variance: few responses have large advantages.

    What it overlaps:
        Every other advantage estimator; filters that drop hard prompts.

    How it is judged:
        Fewer groups are all-incorrect, or the reward rises. Guard: the reward does not fall.

    References:
        Maximum Likelihood Reinforcement Learning, arXiv 2602.02710.
    """

    id = "maxrl"
    title = "Use MaxRL: weight prompts by the inverse of their pass rate"
    applicability = "unsafe"
    in_flight = True
    slots = ("advantage",)
    target = Criterion("groups/all_incorrect_rate", "down")
    more_targets = (Criterion("reward/mean", "up"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "MaxRL, arXiv 2602.02710"
    settings: ClassVar[Mapping[str, Setting]] = {"advantage": "max_rl"}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set what differs if advantages are relative to the group."""
        return super().change(knobs) if knobs.get("advantage") in ("group", "centred") else {}
