"""Common names of metrics, as the last parts of keys whose prefix is in no table."""

from __future__ import annotations

import re
from collections.abc import Iterable

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, fill_placeholders, part_of
from grpodoctor.frameworks.row_keys import is_evaluation
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT

_OTHER_SUBJECTS = frozenset(
    ("teacher", "ref", "reference", "baseline", "critic", "value", "values", "old", "sft", "dpo",
     "rewards", "reward", "component", "components", "timing", "time", "perf", "system", "gpu",
     "memory", "buffer", "cache", "min", "max", "std", "best", "worst", "group", "groups")
)  # fmt: skip
"""Parts of a key after which a common name no longer means the policy's own training metric."""


_MOST_PARTS = 32
"""Parts of a key; a damaged line of a console can have thousands, and each costs a search."""


def by_last_parts(table: Framework, key: str) -> list[tuple[str, KeyMeaning]]:
    """The metric of `grpo/stats/reward_mean`, whose last part is a common name; at most one."""
    parts = key.split("/")
    if len(parts) > _MOST_PARTS:
        return []
    for start in range(1, len(parts)):
        prefix, rest = ".".join(parts[:start]), "/".join(parts[start:])
        heldout = is_evaluation(prefix)
        rows = table.meanings_of(f"eval/{prefix}/{rest}" if heldout else rest)
        if rows and rows[0][0].metric and _OTHER_SUBJECTS.isdisjoint(parts[:start]):
            return [(metric_of_part(*rows[0]), rows[0][0])]
    return []


def has_common_names(table: Framework, keys: Iterable[str]) -> bool:
    """Whether the last parts of some keys are common names."""
    return any(by_last_parts(table, key) for key in keys)


def metric_of_part(row: KeyMeaning, match: re.Match[str]) -> str:
    """The metric of a logged key; for one of several validation sets, with the set's name."""
    metric = fill_placeholders(row.metric, match)
    part = part_of(row.keys[0], row.metric, match) if row.metric in HELDOUT else ""
    return f"{metric}/set/{part}" if part else metric
