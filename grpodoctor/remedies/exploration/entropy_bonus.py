"""An entropy bonus in the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy, number
from grpodoctor.vocabulary.knobs import Setting


class EntropyBonus(Remedy):
    """Add an entropy bonus of 0.001 to the loss.

    What it does:
        Rewards the policy for keeping more than one continuation likely. It pulls entropy up
        everywhere, also at tokens that have only one correct continuation.

    When it applies:
        Entropy falls, and the tokens at the upper clip bound are not the cause, so clip-higher
        cannot help.

    What it costs:
        The right coefficient is narrow: in published runs 0.001 did too little, 0.005 held entropy
        without a gain, and 0.01 made it explode. Prefer an adaptive coefficient where there is one.

    What it overlaps:
        Clip-higher, Clip-Cov, KL-Cov, forking tokens, a higher temperature: choose one.

    How it is judged:
        Entropy stops falling. Guards: the reward does not fall, and truncation does not rise.

    References:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv
        2505.22617; Skywork-OR1, arXiv 2505.22312 (adaptive coefficient).
    """

    id = "entropy-bonus"
    title = "Add an entropy bonus of 0.001"
    applicability = "unsafe"
    in_flight = True
    slots = ("exploration",)
    target = Criterion("entropy/mean", "up")
    guards = (
        Criterion("reward/mean", "down", 0.1),
        Criterion("length/truncated_rate", "up", 0.5, slack=0.05),
    )
    paper = "arXiv 2505.22617"
    settings: ClassVar[Mapping[str, Setting]] = {"entropy_coefficient": 0.001}

    def change(self, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
        """Set `entropy_coefficient` if there is no bonus yet."""
        return super().change(knobs) if number(knobs, "entropy_coefficient") == 0 else {}
