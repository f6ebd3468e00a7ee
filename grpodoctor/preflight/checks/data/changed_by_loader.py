"""DAT133."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_JSON = frozenset({".json", ".jsonl"})
_SHOWN = 4
_ADVICE = (
    "Store such values as JSON text with json.dumps, and read them in the reward function with "
    "json.loads."
)


class ChangedByLoader(Check):
    """Loading the file into a table changes its values.

    What it sees:
        The rows of a JSON file as a table of Arrow holds them, which datasets, and so TRL and
        ms-swift, pass to the reward function. A column has one type there: objects get all keys of
        the other rows, with None; a whole number among decimals becomes a decimal; and text among
        numbers cannot be loaded. If there are reference answers, they are scored with the columns
        before and after.

    Why it matters:
        The reward function gets other values than the file shows. `{"city": "Bonn"}` becomes
        `{"city": "Bonn", "title": None}`, so that no right tool call is equal to it.

    What to do:
        Store objects, and values of several types, as JSON text.

    When it is wrong:
        The trainer reads the file without datasets.

    References:
        datasets, JSON loader; pyarrow.Table.from_pylist.
    """

    code: ClassVar[str] = "DAT133"
    name: ClassVar[str] = "values-changed-by-loader"
    summary: ClassVar[str] = "Loading the file into a table changes its values."
    warning_share: ClassVar[float] = 0.01
    """Share of the answers whose lost reward is a warning."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Bring the columns into a table and back."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        if context.table.suffix not in _JSON:
            return SkippedCheck("the file is no JSON, so that each column has a type")
        mixed = [*_mixed_types(context.rows)]
        if mixed:
            return tuple(mixed)
        answers = context.reference_answers
        if context.reward is None or answers is None or answers.threshold is None:
            return ()
        return tuple(self._lost(context.reward, answers, context.rows))

    def _lost(
        self, reward: UserReward, answers: ReferenceAnswers, rows: Sequence[PromptRow]
    ) -> Iterator[CheckFinding]:
        """Right answers that earn less with the columns of the table."""
        loaded = _loaded([row.columns for row in rows])
        if loaded is None or not (names := _changed_columns(rows, loaded)):
            return
        columns = {row.number: each for row, each in zip(rows, loaded, strict=True)}
        chosen = [replace(row, columns=columns[row.number]) for row in answers.rows]
        texts = [format_answer(answers.answer_format, answer) for answer in answers.answers]
        try:
            after = reward(chosen, texts).total
        except DataError as error:
            yield _finding(len(chosen), len(chosen), names, f"the function fails: {error.what}")
            return
        pairs = zip(answers.rewards, after, strict=True)
        lost = sum(before > value for before, value in pairs)
        if lost > self.warning_share * len(texts):
            yield _finding(lost, len(texts), names, "")


def _finding(lost: int, total: int, names: Mapping[str, str], error: str) -> CheckFinding:
    return CheckFinding(
        "warning",
        f"{part_of(lost, total, 'correct answers', 'lose')} "
        "the reward when the file is loaded with "
        "datasets.",
        (_ADVICE,),
        (
            *(f"column {name}: {example}" for name, example in list(names.items())[:_SHOWN]),
            *((error,) if error else ()),
        ),
        {"share": lost / total},
    )


def _mixed_types(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Columns with values of several types, which no table can hold."""
    for name in dict.fromkeys(name for row in rows for name in row.columns):
        values = [row.columns.get(name) for row in rows]
        if _loaded([{name: value} for value in values]) is not None:
            continue
        kinds = dict.fromkeys(type(value).__name__ for value in values if value is not None)
        of_types = f" ({', '.join(kinds)})" if len(kinds) > 1 else ""
        yield CheckFinding(
            "warning",
            f"The column {name!r} has values of several types{of_types}: datasets cannot load it.",
            (_ADVICE,),
        )


def _loaded(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Rows as a table of Arrow gives them back; None if it cannot hold them."""
    import pyarrow as pa

    names = dict.fromkeys(name for each in columns for name in each)
    try:
        table = pa.Table.from_pylist([{name: each.get(name) for name in names} for each in columns])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return list(table.to_pylist())


def _changed_columns(
    rows: Sequence[PromptRow], loaded: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Columns with other values after loading, and the first of these."""
    changed: dict[str, str] = {}
    for row, after in zip(rows, loaded, strict=True):
        for name, value in row.columns.items():
            if name != row.prompt_column and name not in changed and _differs(value, after[name]):
                changed[name] = f"{_shown(value)} becomes {_shown(after[name])}"
    return changed


def _differs(before: Any, after: Any) -> bool:
    return json.dumps(before, sort_keys=True, default=str) != json.dumps(
        after, sort_keys=True, default=str
    )


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:100]
