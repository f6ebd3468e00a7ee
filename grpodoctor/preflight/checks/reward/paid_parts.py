"""Rewards that pay for the number of steps, lines, tags or calls in a response."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.preflight.answers.completions.repeated_parts import counted_part
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

_LEAST_GROWTH = 1.5
"""Times the reward of a right answer that the parts must earn in addition to be reported."""


def paid_parts(reward: UserReward, answers: ReferenceAnswers) -> Iterator[CheckFinding]:
    """A part whose repetition pays as much as a right answer, or without a limit."""
    if answers.is_graded or (part := counted_part(reward, answers)) is None:
        return
    if part.wrong >= part.right:
        yield CheckFinding(
            "warning",
            f"Wrong answers behind many {part.name} earn {part.wrong:.3g}, right answers without "
            f"them {part.right:.3g}.",
            ("Limit what steps, tags or calls can earn to a part of a right answer's reward, or "
             "pay it for right answers only.",),
            figures={"growth": part.growth},
        )  # fmt: skip
    elif part.growth >= _LEAST_GROWTH:
        yield CheckFinding(
            "warning",
            f"Right answers earn {part.growth:.2g} times as much behind many {part.name}, more "
            "with each of them.",
            ("Limit what steps, tags or calls can earn.",),
            figures={"growth": part.growth},
        )
