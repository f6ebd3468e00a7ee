"""Rewards with which a response without an answer is better than a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.results.check_results import CheckFinding

_MOST = 0.8
"""Share of rows in which silence must pay more than a wrong answer."""
_LEAST_GAIN = 0.25
"""Least advantage of silence over a wrong answer, in units of that of the right answer: an attempt
then pays only where a quarter of the attempts or more are right."""


def paid_silence(answers: ReferenceAnswers) -> Iterator[CheckFinding]:
    """An empty response that earns more than a wrong answer.

    Silence pays wherever fewer than (silence - wrong) / (right - wrong) of the attempts are right.
    """
    rows = zip(answers.rewards, answers.wrong, answers.empty, strict=True)
    gains = [
        (empty - wrong) / (right - wrong)
        for right, wrong, empty in rows
        if right > max(wrong, empty)
    ]
    paid = [gain for gain in gains if gain >= _LEAST_GAIN]
    if not gains or len(paid) < _MOST * len(answers.rows):
        return
    gain = median(paid)
    yield CheckFinding(
        "warning",
        f"A response without an answer earns more than a wrong answer, by {gain:.0%} of what a "
        f"right one earns: silence pays below a pass rate of {gain:.0%}.",
        ("Give a response without a readable answer at most the reward of a wrong answer.",),
        figures={"share": gain},
    )
