"""DAT129."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from scipy.stats import spearmanr

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import flat_columns
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.normal_form import number_of

_ANSWERS = "the answers"
_MIN_ROWS = 64
_MOST_KINDS = 20
"""Different values of a column of kinds, such as sources or labels."""
_MOST_CHANGES = 0.1
"""Changes of the value from row to row, as a share of those in a random order: a kind that is rare
changes seldom in any order."""
_MIN_CORRELATION = 0.95
"""Rank correlation with the row's number that no column has by chance."""
_MAX_LETTERS = 80
_CURRICULUM = re.compile(
    r"curricul|difficult|level|stage|phase|grade|hard|complex|length|\blen", re.IGNORECASE
)
"""Names of columns that the rows are sorted by on purpose, from easy to hard."""


class SortedRows(Check):
    """The rows are sorted, and the run's config switches shuffling off.

    What it sees:
        Only if the config says that the data is not shuffled (TRL: shuffle_dataset, verl:
        data.shuffle). Reports answers and columns with a few values that are in blocks, one block
        for each value or nearly so, and numbers that rise or fall with the row's number (rank
        correlation of 0.95), without the numbers of the rows themselves. A column that is named
        for a curriculum, such as difficulty, level or stage, and numbers in order are a note.

    Why it matters:
        A step sees one answer, one source or one difficulty. The policy can learn the answer of the
        block, forgets the sources before, and the curves show the order of the file.

    What to do:
        Shuffle the file or switch shuffling on.

    When it is wrong:
        The order is a curriculum from easy to hard, by a column that is not named for it.

    References:
        None.
    """

    code: ClassVar[str] = "DAT129"
    name: ClassVar[str] = "sorted-rows"
    summary: ClassVar[str] = "The rows are sorted, and the config does not shuffle them."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Search columns in order."""
        shuffled = context.run_config.get("shuffled_data")
        if shuffled is None:
            return SkippedCheck(
                "whether the data is shuffled is not known", "pass --run-config FILE"
            )
        if shuffled or len(context.rows) < _MIN_ROWS:
            return ()
        blocks, rising = _sorted_columns(context.rows)
        advice = ("Shuffle the file, or switch shuffling on in the config.",)
        findings = []
        if blocks:
            findings.append(
                CheckFinding(
                    "warning",
                    f"The rows are sorted by {' and '.join(blocks)}, and the config does not "
                    "shuffle them.",
                    advice,
                )
            )
        if rising and not blocks:
            findings.append(
                CheckFinding(
                    "info",
                    f"The rows are in the order of {' and '.join(rising)}, and the config does not "
                    "shuffle them.",
                    (f"{advice[0][:-1]}, unless it is a curriculum.",),
                )
            )
        return tuple(findings)


def _sorted_columns(rows: Sequence[PromptRow]) -> tuple[list[str], list[str]]:
    """Columns whose values are in blocks, and columns of numbers in order."""
    blocks: list[str] = []
    rising: list[str] = []
    for name, values in _columns(rows):
        may_be_curriculum = name != _ANSWERS and (_is_monotone(values) or _CURRICULUM.search(name))
        if _is_in_blocks(values):
            (rising if may_be_curriculum else blocks).append(name)
        elif _is_in_order(values, is_answer=name == _ANSWERS):
            rising.append(name)
    return blocks, rising


def _columns(rows: Sequence[PromptRow]) -> Iterator[tuple[str, list[str]]]:
    """The short values of each column, and the answers; each series once."""
    flat = [flat_columns(row.columns) for row in rows]
    seen = set()
    names = dict.fromkeys(name for each in flat[:_MIN_ROWS] for name in each)
    answers = [row.answer or "" for row in rows]
    columns = ((repr(name), [_text(each.get(name)) for each in flat]) for name in names)
    series = [(_ANSWERS, answers), *columns]
    for name, values in series:
        key = tuple(values)
        if key not in seen and all(0 < len(value) <= _MAX_LETTERS for value in values):
            seen.add(key)
            yield name, values


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def _is_in_blocks(values: Sequence[str]) -> bool:
    """Whether each of a few values has one block of rows, with one exception each."""
    kinds = len(set(values))
    if not 2 <= kinds <= min(_MOST_KINDS, len(values) // 8):
        return False
    rows, counts = len(values), Counter(values).values()
    changes = sum(one != other for one, other in pairwise(values))
    by_chance = (rows * rows - sum(count * count for count in counts)) / rows
    return changes <= min(2 * kinds, _MOST_CHANGES * by_chance)


def _is_monotone(values: Sequence[str]) -> bool:
    """Whether numbers never fall, or never rise."""
    numbers = [number for value in values if (number := number_of(value)) is not None]
    return len(numbers) == len(values) and numbers in (
        sorted(numbers), sorted(numbers, reverse=True),
    )  # fmt: skip


def _is_in_order(values: Sequence[str], *, is_answer: bool) -> bool:
    """Whether numbers rise or fall with the row's number, and are no numbers of rows.

    The numbers of rows have gaps if the file was filtered.
    """
    numbers = [number_of(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) < len(values) or len(set(known)) < 2:
        return False
    steps = [after - before for before, after in pairwise(known)]
    are_integers = all(float(number).is_integer() for number in known)
    is_dense = len(set(known)) == len(known) and max(known) - min(known) < 2 * len(known)
    are_ids = is_dense or (not is_answer and (min(steps) > 0 or max(steps) < 0))
    if len(set(steps)) == 1 or (are_integers and are_ids):
        return False
    correlation = spearmanr(range(len(known)), known).statistic
    return bool(math.isfinite(correlation) and abs(correlation) >= _MIN_CORRELATION)
