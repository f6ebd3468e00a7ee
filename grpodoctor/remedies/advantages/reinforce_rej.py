"""Reinforce-Rej: drop groups without variance, no baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class ReinforceRej(Remedy):
    """Drop all-correct and all-incorrect groups and use the raw reward: Reinforce-Rej.

    What it does:
        Most of what GRPO gains over REINFORCE comes from dropping prompts that are never solved.
        Reinforce-Rej drops all-correct and all-incorrect groups and uses the raw reward of the
        others.

    When it applies:
        Many groups have no variance, and resampling them costs too much.

    What it costs:
        The gradient has more variance than with a baseline. Dropped groups were paid for.

    What it overlaps:
        Dynamic sampling, which replaces the dropped groups; every other advantage estimator.

    How it is judged:
        The reward rises. Guard: the reward does not fall.

    References:
        A Minimalist Approach to LLM Reasoning: from Rejection Sampling to Reinforce, arXiv
        2504.11343.
    """

    id = "reinforce-rej"
    title = "Use Reinforce-Rej: raw rewards of mixed groups"
    applicability = "unsafe"
    in_flight = True
    slots = ("advantage", "zero-signal")
    target = Criterion("reward/mean", "up")
    more_targets = (Criterion("advantage/zero_rate", "down"),)
    guards = (Criterion("reward/mean", "down", 0.1),)
    paper = "Reinforce-Rej, arXiv 2504.11343"
    settings: ClassVar[Mapping[str, Setting]] = {"advantage": "reinforce_rej"}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set what differs if advantages are relative to the group."""
        return super().change(knobs) if knobs.get("advantage") in ("group", "centred") else {}
