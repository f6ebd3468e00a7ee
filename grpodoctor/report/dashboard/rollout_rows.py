"""The list of responses as columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpodoctor.runs.rollout_queries.figures import Rollout
from grpodoctor.support.safe_text import plain

COLUMN_TITLES = {
    "step": "Step",
    "sequence_id": "Sequence",
    "reward": "Reward",
    "correct": "Correct",
    "length": "Tokens",
    "truncated": "Truncated",
    "advantage": "Advantage",
    "prob_diff_mean": "Mean |Δp|",
    "prob_diff_max": "Largest |Δp|",
    "logprob_diff_max": "Largest |Δlogp|",
    "entropy_mean": "Entropy",
    "staleness": "Staleness",
}
"""Columns of the list by name, in order; those without any value are left out."""

ORDERS = {
    "step": "Step",
    "reward": "Reward",
    "length": "Length",
    "prob_diff_max": "Mismatch (largest |Δp|)",
    "prob_diff_mean": "Mismatch (mean |Δp|)",
    "logprob_diff_max": "Mismatch (largest |Δlogp|)",
    "advantage": "Advantage",
    "entropy_mean": "Entropy",
    "staleness": "Staleness",
}
"""The orders of the list by column."""

_EXCERPT = 160
_LONGEST_ID = 80


def rollout_columns(
    figures: Sequence[Rollout], in_full: Sequence[Rollout], known: Sequence[str]
) -> dict[str, list[Any]]:
    """The columns of a page of responses.

    Args:
        figures: the figures of the responses.
        in_full: those of them that can be read.
        known: columns that have a value in this run.
    """
    texts = {(each["step"], each["sequence_id"]): each for each in in_full}
    columns: dict[str, list[Any]] = {
        title: [_cell(name, each[name]) for each in figures]
        for name, title in COLUMN_TITLES.items()
        if name in known
    }
    for name, title in (("prompt", "Prompt"), ("text", "Response")):
        excerpts = [
            plain(
                texts.get((each["step"], each["sequence_id"]), {}).get(name) or "", limit=_EXCERPT
            )
            for each in figures
        ]
        columns[title] = excerpts
    return columns


def _cell(name: str, value: Any) -> Any:
    return plain(str(value), limit=_LONGEST_ID) if name == "sequence_id" else value


def page_phrase(total: int, number: int, size: int) -> str:
    """The responses that a page shows."""
    if not total:
        return "No response matches the filters."
    first, last = number * size + 1, min(total, (number + 1) * size)
    return f"{first:,} to {last:,} of {total:,} {'response' if total == 1 else 'responses'}"


def rollout_facts(rollout: Rollout) -> str:
    """The figures of a response on one line."""
    facts = [f"step {rollout['step']}"]
    for name, phrase in (
        ("reward", "reward {:.4g}"),
        ("advantage", "advantage {:.3g}"),
        ("length", "{:.0f} tokens"),
        ("prob_diff_max", "largest |Δp| {:.3g}"),
        ("entropy_mean", "entropy {:.3g}"),
    ):
        if rollout.get(name) is not None:
            facts.append(phrase.format(rollout[name]))
    for name, yes, no in (("correct", "correct", "incorrect"), ("truncated", "truncated", "")):
        if rollout.get(name) is not None and (phrase := yes if rollout[name] else no):
            facts.append(phrase)
    return " · ".join(facts)
