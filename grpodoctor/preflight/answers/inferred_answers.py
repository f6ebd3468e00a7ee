"""Reference answers that no usual column holds: in the columns that the reward function reads.

A function such as `label(completions, intent)` says by its parameters where the answers are. Each
of its columns is tried: the answers are in the one with which it pays right answers more than
wrong ones. Tests of programs are answered by programs that look the tested inputs up.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.completions.inverted_rewards import inverted_reward
from grpodoctor.preflight.answers.data_repairs import helpful_repair, lacks_a_name
from grpodoctor.preflight.answers.kinds.accepted_answers import asks_for_any
from grpodoctor.preflight.answers.kinds.number_puzzles import puzzle_rows
from grpodoctor.preflight.answers.kinds.program_tests import passing_programs
from grpodoctor.preflight.answers.kinds.test_calls import PLACEHOLDERS
from grpodoctor.preflight.answers.kinds.undeserving_answers import parts_of
from grpodoctor.preflight.answers.reference_answers import (
    ReferenceAnswers,
    score_reference_answers,
)
from grpodoctor.preflight.answers.requested.requested_formats import requested_formats
from grpodoctor.preflight.answers.stated_answers import contains_words
from grpodoctor.preflight.inputs.columns import BLANK_ANSWERS
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.texts.normal_form import words_of
from grpodoctor.probe.inputs.prompt_columns import PROMPT_COLUMNS
from grpodoctor.trainer.rewards.user_reward import UserReward

_TRIED_ROWS = 12
"""Rows on which each column is tried."""
_OTHER_COLUMNS = frozenset({"data_source", "index", "id", "ability", "tools", "messages"})
_MOST_UNREAD = 6
"""Columns that the function does not read and that are tried under its own name."""
_MAX_LETTERS = 20_000
"""Letters of a longest answer: a longer text is a document or a list of tests."""
_MAX_TESTS = 50
"""Assertions of a row from which its program is made."""
_RULE = (-1, -1, 0.0)
"""In place of the worth of a column that is a rule about the response."""
_MAX_LABELS, _MOST = 30, 0.8
"""Labels of a closed set, and the share of them that a prompt with a list of all names."""
_QUOTES = (("'", "'"), ('"', '"'), ("\u201c", "\u201d"), ("`", "`"))
_MIN_SENTENCE = 3
"""Words of a sentence that a prompt quotes for the response."""
_ReadValue = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class InferredAnswers:
    """Rows with answers."""

    column: str
    """Column of the answers; empty if they were made: programs from tests, or expressions."""
    rows: tuple[PromptRow, ...]


def infer_answers(
    reward: UserReward, rows: Sequence[PromptRow], settings: RunSettings
) -> InferredAnswers | None:
    """Answers from the columns that the function reads; None if it does not react to any."""
    few = tuple(spread_rows(tuple(rows), _TRIED_ROWS))
    read_names = dict.fromkeys((*reward.parameters, *reward.keywords))
    names = [
        name
        for name in read_names
        if any(name in row.columns for row in rows) and _may_hold_answers(few, name)
    ]
    if programs := _programs(rows, names):
        return InferredAnswers("", programs)
    takes_any = sum(map(asks_for_any, few)) > len(few) / 2
    readers = (_one_text, _any_of, _joined) if takes_any else _READERS
    candidates = [(name, read) for name in names for read in readers if _is_answer(few, name, read)]
    worth = {at: _worth(reward, _read(few, *each), settings) for at, each in enumerate(candidates)}
    best = max(worth, key=lambda at: worth[at], default=None)
    if best is not None and max(worth[best][:2]) > len(few) / 2:
        return InferredAnswers(candidates[best][0], _read(rows, *candidates[best]))
    if any(each == _RULE for each in worth.values()):
        return None
    if column := _unread_column(reward, few, names, settings):
        return InferredAnswers(column[0], _read(rows, *column))
    asked = requested_formats(["\n".join(row.texts()) for row in few])
    for name, read in candidates:
        if helpful_repair(reward, _read(few, name, read), settings, asked):
            return InferredAnswers(name, _read(rows, name, read))
    for name, read in candidates:
        if inverted_reward(reward, _read(few, name, read), settings):
            return InferredAnswers(name, _read(rows, name, read))
    if not names and any(name not in row.columns for name in read_names for row in few):
        return _under_another_name(reward, rows, few, settings)
    return None


def _unread_column(
    reward: UserReward, few: Sequence[PromptRow], read_names: Sequence[str], settings: RunSettings
) -> tuple[str, _ReadValue] | None:
    """A column that the function does not read and whose values it pays as responses.

    A function that verifies responses by itself, such as a pattern by its matches, has its right
    answers there.
    """
    columns = dict.fromkeys(str(name) for row in few for name in row.columns)
    others = [name for name in columns if name not in read_names and _may_hold_answers(few, name)]
    for name in others[:_MOST_UNREAD]:
        if _is_answer(few, name, _one_text):
            worth = _worth(reward, _read(few, name, _one_text), settings)
            if min(worth[:2]) > _MOST * len(few):
                return name, _one_text
    return None


def _under_another_name(
    reward: UserReward, rows: Sequence[PromptRow], few: Sequence[PromptRow], settings: RunSettings
) -> InferredAnswers | None:
    """Answers in a column that the function does not read, and would pay under its own name.

    A function whose parameter has a default value runs without the column and pays nothing.
    """
    asked = requested_formats(["\n".join(row.texts()) for row in few])
    columns = list(dict.fromkeys(str(name) for row in few for name in row.columns))
    others = [name for name in columns if _may_hold_answers(few, name)][:_MOST_UNREAD]
    for name, read in ((name, read) for name in others for read in _READERS):
        if not _is_answer(few, name, read):
            continue
        if lacks_a_name(reward, _read(few, name, read), settings, asked):
            return InferredAnswers(name, _read(rows, name, read))
    return None


def _may_hold_answers(rows: Sequence[PromptRow], name: str) -> bool:
    """Whether a column is no prompt, no part of it and no mark of the row.

    A column such as `query` is a prompt in some data and the answer in other data.
    """
    if name in _OTHER_COLUMNS or any(name == row.prompt_column for row in rows):
        return False
    if name not in PROMPT_COLUMNS:
        return True
    values = [(row.columns.get(name), row) for row in rows]
    return not any(
        not isinstance(value, str) or any(value in text for text in row.texts())
        for value, row in values
    )


def solved_puzzles(
    reward: UserReward, rows: Sequence[PromptRow], settings: RunSettings
) -> InferredAnswers | None:
    """Expressions that solve number puzzles; None if there are none, or the function pays none."""
    solved = puzzle_rows(rows)
    few = tuple(spread_rows(tuple(row for row in solved if row.answer), _TRIED_ROWS))
    is_paid = bool(few) and max(_worth(reward, few, settings)[:2]) > len(few) / 2
    return InferredAnswers("", solved) if is_paid else None


def are_results_of(rows: Sequence[PromptRow], solutions: Sequence[PromptRow]) -> bool:
    """Whether most answers are a part of the solution of the row, such as its result."""
    are_parts = [
        bool(words := words_of(row.answer or ""))
        and contains_words(words_of(solution.answer or ""), words)
        for row, solution in zip(rows, solutions, strict=True)
    ]
    return sum(are_parts) > len(rows) / 2


def _worth(
    reward: UserReward, rows: Sequence[PromptRow], settings: RunSettings
) -> tuple[int, int, float]:
    """How many right answers earn more than wrong ones, and than no answer; their mean reward.

    If a wrong answer earns as much, and a sentence in its place nothing, the column is read, too.
    """
    try:
        answers = score_reference_answers(reward, rows, settings)
    except DataError:
        return 0, 0, 0.0
    if answers is None:
        return 0, 0, 0.0
    if _is_rule(reward, answers):
        return _RULE
    better = sum(r > w for r, w in zip(answers.rewards, answers.wrong, strict=True))
    others = zip(answers.empty, answers.unrelated, strict=True)
    nothing = [max(empty, unrelated) for empty, unrelated in others]
    paid = sum(r > n for r, n in zip(answers.rewards, nothing, strict=True))
    return better, paid, sum(answers.rewards) / len(answers.rewards)


def _is_rule(reward: UserReward, answers: ReferenceAnswers) -> bool:
    """Whether a column is a rule about the response, such as a word that it must contain.

    A copy of the prompt then earns as much, as the prompt states the rule; or the prompt quotes
    the sentence. A prompt that lists all labels states no rule.
    """
    quoted = [
        any(f"{mark}{answer}{end}" in "\n".join(row.texts()) for mark, end in _QUOTES)
        for row, answer in zip(answers.rows, answers.answers, strict=True)
    ]
    is_sentence = [len(answer.split()) >= _MIN_SENTENCE for answer in answers.answers]
    if sum(map(all, zip(quoted, is_sentence, strict=True))) >= _MOST * len(quoted):
        return True
    labels = {part for answer in answers.answers for part in parts_of(answer) or [answer]}
    if len(labels) <= _MAX_LABELS:
        listed = [sum(label in row.prompt for label in labels) for row in answers.rows]
        if min(listed) >= _MOST * len(labels):
            return False
    try:
        copied = reward(answers.rows, [row.prompt for row in answers.rows]).total
    except DataError:
        return False
    pairs = zip(copied, answers.rewards, answers.empty, strict=True)
    equal = [copy >= right for copy, right, empty in pairs if right > max(empty, 0.0)]
    return sum(equal) > len(equal) / 2


def _read(rows: Sequence[PromptRow], name: str, read: _ReadValue) -> tuple[PromptRow, ...]:
    return tuple(replace(row, answer=_answer(row, name, read)) for row in rows)


def _answer(row: PromptRow, name: str, read: _ReadValue) -> str | None:
    text = read(row.columns.get(name))
    return None if text is None or text.strip().casefold() in BLANK_ANSWERS else text


def _is_answer(rows: Sequence[PromptRow], name: str, read: _ReadValue) -> bool:
    """Whether a column differs from row to row, and is no part of the prompts."""
    texts = [_answer(row, name, read) for row in rows]
    filled = [text for text in texts if text]
    if len(filled) <= len(rows) / 2 or len(set(filled)) < 2:
        return False
    return all(len(text) <= _MAX_LETTERS for text in filled)


def _one_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.15g}"
    return json.dumps(value) if isinstance(value, Mapping) and value else None


def _joined(value: Any) -> str | None:
    """A list of texts or numbers, with commas."""
    if not isinstance(value, list) or not value:
        return None
    texts = [_one_text(each) for each in value]
    return ", ".join(text for text in texts if text) if all(texts) else None


def _first(value: Any) -> str | None:
    return _one_text(value[0]) if isinstance(value, list) and len(value) > 1 else None


def _any_of(value: Any) -> str | None:
    """One of several accepted answers."""
    return _one_text(value[0]) if isinstance(value, list) and value else None


_READERS: tuple[_ReadValue, ...] = (_one_text, _joined, _first)


def _programs(rows: Sequence[PromptRow], names: Sequence[str]) -> tuple[PromptRow, ...]:
    """Rows with programs that pass their tests; empty if the columns are no tests."""
    if {"inputs", "outputs"} <= set(names):
        tests = [
            json.dumps({key: row.columns.get(key) for key in ("inputs", "outputs")}) for row in rows
        ]
        programs = passing_programs(tests)
        if programs:
            return tuple(
                replace(row, answer=each) for row, each in zip(rows, programs, strict=True)
            )
    for name in names:
        answers = [
            program_of_assertions(row.columns.get(name), _entry_point(row.columns)) for row in rows
        ]
        if sum(map(bool, answers)) > len(rows) / 2:
            return tuple(
                replace(row, answer=each or None) for row, each in zip(rows, answers, strict=True)
            )
    return ()


def _entry_point(columns: Mapping[str, Any]) -> str:
    """The name of the tested function in a column of its own, as in HumanEval; else empty."""
    name = columns.get("entry_point")
    return name if isinstance(name, str) and name.isidentifier() else ""


def program_of_assertions(tests: Any, entry_point: str = "") -> str:
    """A function that passes assertions of the form `assert f(…) == value`; empty if others exist.

    Args:
        tests: the assertions, as text or as a list of texts.
        entry_point: the function that the tests call by a placeholder such as `candidate`.
    """
    texts = tests if isinstance(tests, list) else [tests]
    tables: dict[str, dict[str, str]] = {}
    if not all(_are_equations(text) for text in texts[:_MAX_TESTS]):
        return ""
    for text in texts[:_MAX_TESTS]:
        for called, given, wanted in _equations(text) if isinstance(text, str) else ():
            name = entry_point if entry_point and called in PLACEHOLDERS else called
            tables.setdefault(name, {})[given] = wanted
    lines = []
    for name, table in tables.items():
        pairs = ", ".join(f"{given!r}: {wanted}" for given, wanted in table.items())
        lines.append(
            f"def {name}(*values, **named):\n    table = {{{pairs}}}\n"
            "    return table[repr((values, named))]"
        )
    return "\n".join(lines)


def _are_equations(text: object) -> bool:
    """Whether a lookup of values passes all assertions, apart from those of a constant."""
    if not isinstance(text, str):
        return True
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    asserted = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant)
    ]
    return len(asserted) == len(list(_equations(text)))


def _equations(text: str) -> Iterator[tuple[str, str, str]]:
    """Function, arguments and value of each assertion of an equality."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare)):
            continue
        call, value = node.test.left, node.test.comparators[0]
        is_equality = len(node.test.ops) == 1 and isinstance(node.test.ops[0], ast.Eq)
        if not (is_equality and isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        try:
            values = tuple(ast.literal_eval(each) for each in call.args)
            named = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
            yield call.func.id, repr((values, named)), repr(ast.literal_eval(value))
        except ValueError:
            continue
