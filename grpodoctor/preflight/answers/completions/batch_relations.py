"""Relations between the rewards of the same responses in several batches.

A trainer decides how responses are batched: by group, by process and by what was filtered. The
reward of a response must not depend on it. No right answer is needed: the responses are the values
of the row's own columns and of another row's, in the formats that prompts ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import FORMATS, format_answer
from grpodoctor.preflight.answers.requested.requested_formats import requested_formats
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.trainer.rewards.user_reward import RewardInput, UserReward

_ROWS = 8
_SINGLE = 12
"""Batches of one response."""
_MOST_FORMATS, _MOST_VALUES = 6, 4
_USUAL_FORMATS = ("boxed", "tags", "answer line", "plain")
_MAX_LETTERS = 2000
"""Letters of a value: a longer one is a document."""
_ROUNDING = 1e-5
"""Difference of two rewards that the order of a batch causes in float32."""
_KEPT = frozenset({"prompt", "image", "images"})
"""Columns that TRL keeps if it removes the columns that its trainer does not name."""


@dataclass(frozen=True, slots=True)
class ChangedRewards:
    """Responses whose reward depends on the batch."""

    changed: int
    total: int
    largest: float
    """Largest difference of two rewards of a response."""
    batches: str
    """In which batches they were scored the second time."""


def changed_by_batch(reward: UserReward, rows: Sequence[PromptRow]) -> ChangedRewards | None:
    """Rewards that are others if the batch holds one response, or one group; None if none are.

    None too if the function fails, or if it gives another reward to the same batch: it is random.
    """
    mixed = list(_mixed_batch(reward, rows))
    if len(mixed) < _ROWS:
        return None
    batch = [row for row, _ in mixed]
    texts = [text for _, text in mixed]
    try:
        together = reward(batch, texts).total
        if _compare(together, reward(batch, texts).total)[0]:
            return None
        groups = _in_parts(reward, mixed, _groups_of(batch))
        found, largest = _compare(together, groups)
        if found:
            return ChangedRewards(found, len(mixed), largest, "the responses to one prompt")
        step = max(len(mixed) // _SINGLE, 1)
        chosen = range(0, len(mixed), step)
        single = [reward([batch[at]], [texts[at]]).total[0] for at in chosen]
        found, largest = _compare([together[at] for at in chosen], single)
    except DataError:  # REW103 reports it
        return None
    return ChangedRewards(found, len(single), largest, "one response") if found else None


def changes_without_columns(reward: UserReward, rows: Sequence[PromptRow]) -> bool:
    """Whether the function fails, or earns other rewards, without the columns that TRL removes."""
    mixed = list(_mixed_batch(reward, rows))
    texts = [text for _, text in mixed]
    try:
        before = reward([row for row, _ in mixed], texts).total
    except DataError:  # REW103 reports it
        return False
    bare = [
        replace(row, answer=None, columns={k: v for k, v in row.columns.items() if k in _KEPT})
        for row, _ in mixed
    ]
    try:
        return _compare(before, reward(bare, texts).total)[0] > 0
    except DataError:
        return True


def _compare(first: Sequence[float], again: Sequence[float]) -> tuple[int, float]:
    """How many rewards differ by more than rounding, and the largest difference."""
    differences = [abs(one - other) for one, other in zip(first, again, strict=True)]
    return sum(each > _ROUNDING for each in differences), max(differences, default=0.0)


def _groups_of(rows: Sequence[RewardInput]) -> list[list[int]]:
    """Places of the responses to each prompt."""
    groups: dict[int, list[int]] = {}
    for at, row in enumerate(rows):
        groups.setdefault(id(row), []).append(at)
    return list(groups.values())


def _in_parts(
    reward: UserReward, mixed: Sequence[tuple[PromptRow, str]], parts: Sequence[Sequence[int]]
) -> list[float]:
    """Rewards of responses that are scored in several batches, in the order of the responses."""
    scored = [0.0] * len(mixed)
    for part in parts:
        values = reward([mixed[at][0] for at in part], [mixed[at][1] for at in part]).total
        for at, value in zip(part, values, strict=True):
            scored[at] = value
    return scored


def _mixed_batch(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[tuple[PromptRow, str]]:
    """Responses with values of the read columns, of the row itself and of the next one."""
    few = list(spread_rows(tuple(rows), _ROWS))
    read = list(dict.fromkeys((*reward.parameters, *reward.keywords)))
    forms = [*requested_formats(["\n".join(row.texts()) for row in few])[:_MOST_FORMATS]]
    forms += [FORMATS[name] for name in _USUAL_FORMATS if FORMATS[name] not in forms]
    for at, row in enumerate(few):
        other = few[(at + 1) % len(few)]
        own = list(_values(row, read))[:_MOST_VALUES]
        others = [each for each in _values(other, read) if each not in own][:_MOST_VALUES]
        for form in forms[:_MOST_FORMATS]:
            for value in (*own[:1], *others[:1]):
                yield row, format_answer(form, value)
        yield row, ""


def _values(row: PromptRow, read: Sequence[str]) -> Iterator[str]:
    """The short values of a row's columns that the function reads, and its answer."""
    if row.answer:
        yield row.answer
    for name in read:
        value: Any = row.columns.get(name)
        if name != row.prompt_column and isinstance(value, str | int | float):
            text = f"{value:.15g}" if isinstance(value, float) else str(value)
            if 0 < len(text) < _MAX_LETTERS:
                yield text
