"""Bad responses that earn no more than the format of their answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpodoctor.preflight.answers.constructed_answers import EMPTY, NO_ANSWER, WRONG
from grpodoctor.preflight.results.check_results import CheckFinding

_ADVICE = "Pay less for the format than for the answer, such as by reward weights."
_OWN_KINDS = (NO_ANSWER, EMPTY)
"""Kinds without an answer, which may be paid for another reason."""
_SAME_WORTH = 0.05
"""Difference between parts of a reward that are the same part."""


def without_same_form(findings: Sequence[CheckFinding]) -> list[CheckFinding]:
    """The findings, without bad responses that earn what any wrong answer in the format earns."""
    form = [each for each in findings if each.summary.startswith(WRONG) and "worth" in each.figures]
    if not form:
        return [*findings]
    least = form[0].figures["worth"] + _SAME_WORTH
    others = [
        each
        for each in findings
        if each.figures.get("worth", 1.0) > least or each.summary.startswith(_OWN_KINDS)
    ]
    return [replace(form[0], advice=(_ADVICE,)), *others]
