"""Rows that are no steps of a training: single responses, and the actions of episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from grpodoctor.frameworks.rollout_formats.response_rows import PROMPTS, TEXTS
from grpodoctor.runs.log_formats.base import LogRow

_EPISODES = ("episode_id", "episode", "trajectory_id")
_MIN_RESPONSES, _NEARLY_ALL = 20, 0.9
_MIN_EPISODES = 3


def texts_of_responses(rows: Sequence[LogRow]) -> list[str]:
    """The columns of the prompt and its response, if nearly all rows have them and none a step.

    The first or the last row may describe the file.
    """
    if len(rows) < _MIN_RESPONSES or any(row.step is not None for row in rows):
        return []
    counts = Counter(name for row in rows for name in row.texts)
    common = [name for name in counts if counts[name] >= _NEARLY_ALL * len(rows)]
    columns = [
        next((known for name in names for known in common if _is_named(known, name)), "")
        for names in (PROMPTS, TEXTS)
    ]
    return columns if all(columns) else []


def episodes_of_actions(rows: Sequence[LogRow]) -> str:
    """The column of the episode, if the step of the rows begins again with every episode.

    Such a step counts the actions of an episode. Empty without such a column, or if a step goes
    back within an episode or goes on in the next one.
    """
    for column in _EPISODES:
        marks = [
            (episode, row.step)
            for row in rows
            if (episode := _value(row, column)) and row.step is not None
        ]
        if len(marks) < _NEARLY_ALL * len(rows) or len({each for each, _ in marks}) < _MIN_EPISODES:
            continue
        begins = [now[1] <= before[1] for before, now in pairwise(marks)]
        changes = [now[0] != before[0] for before, now in pairwise(marks)]
        if begins == changes and len({step for _, step in marks}) > 1:
            return column
    return ""


def _value(row: LogRow, column: str) -> str:
    number = row.values.get(column)
    return row.texts.get(column, "") if number is None else str(number)


def _is_named(column: str, name: str) -> bool:
    """Whether a column has a name, or ends with it as a word: `Model Response`."""
    words = column.lower().replace(" ", "_")
    return words == name or words.endswith(f"_{name}")
