"""Keys that name a statistic without its quantity (`mean`, `min`), or have one letter (`R`).

A script that logs one thing leaves its name out. In a log of RL that is nearly always the reward,
but the log does not state it. The log is therefore not read until the user confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpodoctor.runs.reading.key_words import is_heldout

_MEANS = ("mean", "avg", "average")

_STATISTICS = {
    **dict.fromkeys(_MEANS, "reward/mean"),
    "std": "reward/std",
    "min": "reward/min",
    "max": "reward/max",
}
"""The metric of each statistic if it is of the reward."""

_SILENT = frozenset({"count", "n", "num", "median", "var", "sum", "total", "epoch", "lr"})
"""Keys that say nothing either."""


def metrics_of_bare_keys(keys: Iterable[str]) -> dict[str, str]:
    """The metrics of the keys if all of them are statistics of the reward; empty if one is not.

    A mean alone is not enough: a log of the loss has one as well, and no minimum next to it.
    """
    known = set(keys)
    found = {key: metric for key, metric in _STATISTICS.items() if key in known}
    means = [key for key in _MEANS if key in known]
    is_bare = len(means) == 1 and len(found) > 1 and not known - found.keys() - _SILENT
    return found if is_bare else {}


_LETTERS = {"r": "reward/mean", "h": "entropy/mean", "l": "length/mean"}
"""What a line such as `R=0.48 H=0.51 L=500` abbreviates."""
_SHORTEST_LENGTH = 2.0
"""Tokens; below it, `L` may be the loss."""


def metrics_of_letters(lowest: Mapping[str, float]) -> dict[str, str]:
    """The metrics that keys of one letter may hold, for the user to confirm.

    A letter alone may stand for anything; `R` and `H` in one log are the reward and the entropy.

    Args:
        lowest: the lowest value of each unknown key.
    """
    training = [key for key in lowest if not is_heldout(key)]
    by_letter = {key.rpartition("/")[2].lower(): key for key in training}
    if not {"r", "h"} <= by_letter.keys() or lowest[by_letter["h"]] < 0:
        return {}
    found = {by_letter[letter]: _LETTERS[letter] for letter in _LETTERS if letter in by_letter}
    return {
        key: metric
        for key, metric in found.items()
        if metric != "length/mean" or lowest[key] >= _SHORTEST_LENGTH
    }


def question_about(metrics: dict[str, str]) -> str:
    """The remedy for a log with such keys."""
    mean = next(key for key, metric in metrics.items() if metric == "reward/mean")
    return f"if they are of the reward, pass --map {mean}=reward/mean; --suggest-map shows them"
