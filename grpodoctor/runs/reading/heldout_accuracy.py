"""Accuracies without a prefix in the rows of evaluations.

A script that evaluates before the first update logs a row with the result alone, and later adds the
reward of the step to such rows. `exact_match` is then measured on held-out prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpodoctor.runs.log_formats.base import EVALUATION, LogRow

_EXACT = ("exact_match", "exact", "em", "exact_match_rate", "exact_match_accuracy")
"""Names of the share of exact answers, which are the metric of an evaluation first of all."""


def heldout_accuracy_among(rows: Sequence[LogRow], reward: str) -> str:
    """The key that holds the accuracy on held-out prompts; '' without one.

    Args:
        rows: the first rows of the log.
        reward: the key of the training reward; empty if there is none.
    """
    own = [row for row in rows if row.counter != EVALUATION]
    return next((key for key in _EXACT if reward and _begins_before(own, key, reward)), "")


def _begins_before(rows: Sequence[LogRow], key: str, reward: str) -> bool:
    """Whether the first row with a key precedes all rewards, and later rows have both."""
    first = next((row for row in rows if key in row.values or reward in row.values), None)
    if first is None or reward in first.values:
        return False
    return any(key in row.values and reward in row.values for row in rows)
