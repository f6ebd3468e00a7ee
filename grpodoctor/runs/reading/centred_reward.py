"""Rewards that a script centres before it logs them.

The mean of rewards from which the batch's mean was subtracted is zero by construction. It says
nothing about the outcome of a step, unlike the mean of the raw rewards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from grpodoctor.frameworks.row_keys import is_evaluation, words_of
from grpodoctor.runs.log_formats.base import LogRow

_SHARE = 1e-3
"""Largest mean of a centred reward, as a share of its spread. The mean of a thousand rewards around
zero is below it once in forty times."""

_MIN_ROWS = 3
"""Rows with both numbers; all must be centred."""

_REWARD = frozenset({"reward", "rewards", "return", "returns", "score", "scores"})
_RAW = frozenset({"raw", "unnormalized", "uncentered", "uncentred"})
_ERRORS = frozenset({"cer", "wer", "error", "errors", "loss", "perplexity", "ppl"})
"""Words of quantities that fall when the outcome improves."""


def centred_keys(rows: Sequence[LogRow], keys: Iterable[str]) -> set[str]:
    """The keys of rewards whose mean is zero within a thousandth of their spread in all rows."""
    pairs = [
        (key, spread)
        for key in keys
        if not _REWARD.isdisjoint(words_of(key)) and not is_evaluation(key)
        for spread in dict.fromkeys((key.replace("mean", "std"), f"{key}_std", f"{key}/std"))
        if spread != key
    ]
    return {key for key, spread in pairs if _is_centred(rows, key, spread)}


def _is_centred(rows: Sequence[LogRow], key: str, spread: str) -> bool:
    count = 0
    for row in rows:
        if key not in row.values or spread not in row.values:
            continue
        if not abs(row.values[key]) <= _SHARE * row.values[spread] or not row.values[spread]:
            return False
        count += 1
    return count >= _MIN_ROWS


def raw_reward_among(keys: Mapping[str, int]) -> str:
    """The only key that holds the mean of raw rewards; '' without one.

    Args:
        keys: keys that give no metric or a component's mean, with the number of rows.
    """
    candidates = [key for key, rows in keys.items() if rows >= _MIN_ROWS and _is_raw(words_of(key))]
    return candidates[0] if len(candidates) == 1 else ""


def _is_raw(words: Collection[str]) -> bool:
    others = {"std", "min", "max", "var", "count"}
    return all(
        (
            not _RAW.isdisjoint(words),
            not _REWARD.isdisjoint(words),
            (_ERRORS | others).isdisjoint(words),
        )
    )


def centred_note(centred: Collection[str], raw: str) -> str:
    """Note that a reward is centred, and what is read instead."""
    names = ", ".join(sorted(centred))
    read = f"{raw} is read as reward/mean" if raw else "log the mean of the raw rewards as well"
    return (
        f"{names}: the mean is 0 by construction (below a thousandth of the spread in every row), "
        f"so it is no outcome; {read}"
    )
