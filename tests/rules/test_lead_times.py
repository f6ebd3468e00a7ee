"""How early a rule fired, as a sentence."""

from __future__ import annotations

import pytest

from grpodoctor.rules.lead_times import LeadTime


@pytest.mark.parametrize(
    ("lead", "sentence"),
    [
        (
            LeadTime({"early": 1, "at onset": 7, "audit": 10}, 66),
            "In 18 sick runs, this rule fired early once, at the onset 7 times and late 10 times. "
            "The early finding came 66 steps before half of the fall of the reward.",
        ),
        (
            LeadTime({"early": 2}, 5),
            "In 2 sick runs, this rule fired early twice. The early findings came a median of 5 "
            "steps before half of the fall of the reward.",
        ),
        (LeadTime({"audit": 1}), "In 1 sick run, this rule fired late once."),
    ],
)
def test_the_sentence_says_fall_and_not_loss(lead: LeadTime, sentence: str) -> None:
    assert lead.sentence == sentence
