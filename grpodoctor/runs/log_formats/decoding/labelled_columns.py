"""The runs of a table that has one column per run and key: `reward_a`, `treated/reward`.

A part of a name may be a run, a component of the reward or a statistic. It is taken for a run only
if it says so: a letter, a number with `run` or `seed`, an algorithm, or an arm of an experiment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from grpodoctor.frameworks.registry import generic_framework

_LABEL = re.compile(
    r"[a-d]|(?:run|seed|exp|trial|arm|variant)[_-]?\d{1,4}|baseline|control|treated|treatment|ours|"
    r"vanilla|ablation|grpo|ppo|dapo|gspo|rloo|reinforce|dr_?grpo|cispo|gigpo",
    re.IGNORECASE,
)
"""Names of runs."""

_OUTCOMES = frozenset({"reward/mean", "accuracy/train"})
"""Each run must have one of these metrics, so that its columns can be judged by themselves."""

_Split = Callable[[str], tuple[str, str]]


def labels_of_runs(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each run with the key of every column; empty without two runs.

    Args:
        names: the names of the columns.

    Returns:
        The label of each run, and a key per column. The key is empty in the columns of another
        run. Columns without a label are those of all runs.
    """
    for split in (_before("/"), _before("_"), _after("_"), _after("/")):
        pairs = [split(name) for name in names]
        keys: dict[str, set[str]] = {}
        for label, key in pairs:
            if label:
                keys.setdefault(label, set()).add(key)
        layouts = set(map(frozenset, keys.values()))
        if len(keys) > 1 and len(layouts) == 1 and _has_outcome(next(iter(layouts))):
            return [(run, [_key_for(run, pair) for pair in pairs]) for run in keys]
    return []


def _key_for(run: str, pair: tuple[str, str]) -> str:
    label, key = pair
    return key if label in ("", run) else ""


def _has_outcome(keys: Iterable[str]) -> bool:
    common = generic_framework()
    return any(row.metric in _OUTCOMES for key in keys for row, _ in common.meanings_of(key))


def _before(mark: str) -> _Split:
    """Split names whose first part is the label."""

    def split(name: str) -> tuple[str, str]:
        for place in [match.start() for match in re.finditer(re.escape(mark), name)][:2]:
            if _LABEL.fullmatch(name[:place]):
                return name[:place], name[place + 1 :]
        return "", name

    return split


def _after(mark: str) -> _Split:
    """Split names whose last part is the label."""

    def split(name: str) -> tuple[str, str]:
        places = [match.start() for match in re.finditer(re.escape(mark), name)]
        for place in places[:-3:-1]:
            if _LABEL.fullmatch(name[place + 1 :]):
                return name[place + 1 :], name[:place]
        return "", name

    return split
