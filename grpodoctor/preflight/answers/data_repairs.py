"""Repairs of the data after which correct answers earn a reward; the one that helps is the fault.

If no correct answer earns anything, the reason is often that function and data do not fit: text
that is compared with numbers, JSON within JSON, messages where text is expected, or a column under
another name. Each repair changes the rows in one way, and the answers are scored again.
"""

from __future__ import annotations

import ast
import html
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import (
    answer_formats,
    format_answer,
    wrong_answer,
)
from grpodoctor.preflight.answers.kinds.number_puzzles import puzzle_rows
from grpodoctor.preflight.answers.multiple_choice import (
    letter_of_number,
    letter_of_place,
    option_of_letter,
    option_of_text,
)
from grpodoctor.preflight.answers.simpler_answers import SIMPLER, Change
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.texts.normal_form import number_of
from grpodoctor.probe.inputs.prompt_columns import PROMPT_COLUMNS
from grpodoctor.trainer.rewards.user_reward import UserReward

_MAX_SHORT = 60
"""Letters of a value that may be the answer in place of another column's."""
TRIED_ROWS = 8
"""Rows on which a repair is tried."""
_MOST_MISSING, _MOST_RENAMED = 4, 12
"""Keys without a column, and columns that are tried under each of them."""
_CODE = "Correct the code that writes this column."


@dataclass(frozen=True, slots=True)
class Repair:
    """A change of the rows that makes function and data fit."""

    summary: str
    """What is wrong, as the beginning of a sentence that ends with the number of answers."""
    advice: str
    rows: tuple[PromptRow, ...]


def helpful_repair(
    reward: UserReward,
    rows: Sequence[PromptRow],
    settings: RunSettings,
    requested: Sequence[str] = (),
) -> Repair | None:
    """The first repair after which most correct answers earn more than wrong and empty ones."""
    few = rows[:TRIED_ROWS]
    forms = (*answer_formats(settings).values(), *requested)
    for repair in _repairs(reward, few, forms):
        if _earns(reward, repair.rows, forms):
            return repair
    if _earns(reward, few, forms):
        return None  # the answers are read as they are: nothing has to be simpler
    simpler = _of_columns(few, SIMPLER)
    return next((repair for repair in simpler if _earns(reward, repair.rows, forms)), None)


def lacks_a_name(
    reward: UserReward,
    rows: Sequence[PromptRow],
    settings: RunSettings,
    requested: Sequence[str] = (),
) -> bool:
    """Whether the answers earn a reward under a name that the function reads and the data lacks."""
    few = rows[:TRIED_ROWS]
    forms = (*answer_formats(settings).values(), *requested)
    return any(_earns(reward, repair.rows, forms) for repair in _of_names(reward, few))


def _earns(reward: UserReward, rows: Sequence[PromptRow], forms: Sequence[str]) -> bool:
    return any(_separates(reward, rows, form) for form in forms)


def _separates(reward: UserReward, rows: Sequence[PromptRow], form: str) -> bool:
    answers = [final_answer(row.answer or "") for row in rows]
    wrong = [wrong_answer(answer, answers) for answer in answers]
    try:
        right, others, empty = (
            reward(rows, texts).total
            for texts in (
                [format_answer(form, answer) for answer in answers],
                [format_answer(form, answer) for answer in wrong],
                [""] * len(rows),
            )
        )
    except DataError:
        return False
    better = [r > max(w, e) for r, w, e in zip(right, others, empty, strict=True)]
    return sum(better) > len(better) / 2


def _repairs(
    reward: UserReward, rows: Sequence[PromptRow], forms: Sequence[str]
) -> Iterator[Repair]:
    yield from _of_messages(reward, rows)
    yield from _of_names(reward, rows)
    yield from _of_columns(rows, _REPAIRS)
    yield from _of_text_numbers(rows)
    yield from _of_options(rows)
    yield from _of_other_columns(reward, rows, forms)
    yield from _of_renamed_columns(reward, rows)


def _of_messages(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[Repair]:
    """Completions as text in place of messages, and the other way round."""
    if reward.form != "trl":
        return
    if all(row.messages for row in rows):
        yield Repair(
            "The reward function reads text, but completions of message prompts are lists of "
            "messages",
            'Read the text with completion[0]["content"].',
            tuple(replace(row, messages=()) for row in rows),
        )
    elif not any(row.messages for row in rows):
        yield Repair(
            "The reward function reads messages, but completions of text prompts are text",
            "Store prompts as messages, or read the completion as it is.",
            tuple(
                replace(row, messages=({"role": "user", "content": row.prompt},)) for row in rows
            ),
        )


def _of_names(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[Repair]:
    """The answer under a name that the function reads and the data does not have."""
    present = {str(name) for row in rows for name in row.columns}
    for name in (*reward.keywords, *reward.parameters):
        if name not in present:
            yield Repair(
                f"The reward function reads {name!r}, which is no column of the data",
                f"Rename the column of the answers to {name!r}, or read the column that exists.",
                tuple(
                    replace(row, columns={**row.columns, name: final_answer(row.answer or "")})
                    for row in rows
                ),
            )


def _of_renamed_columns(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[Repair]:
    """Another column under a key that the function looks up and the data does not have.

    A key that is only an alternative, such as `kwargs.get("answer") or kwargs.get("label")`, helps
    under no column: what the function looks up is no fault by itself.
    """
    present = dict.fromkeys(str(name) for row in rows for name in row.columns)
    others = [name for name in present if name not in PROMPT_COLUMNS][:_MOST_RENAMED]
    missing = [name for name in reward.keywords if name not in present]
    for name, other in product(missing[:_MOST_MISSING], others):
        yield Repair(
            f"The reward function reads {name!r}, which is no column, and not {other!r}",
            f"Rename the column {other!r} to {name!r}, or read {other!r} in the function.",
            tuple(
                replace(row, columns={**row.columns, name: row.columns.get(other)})
                for row in puzzle_rows(rows) or rows
            ),
        )


def _of_columns(rows: Sequence[PromptRow], changes: Sequence[Change]) -> Iterator[Repair]:
    """Each change of each column that most rows notice."""
    names = [name for name in (rows[0].columns if rows else {}) if name not in PROMPT_COLUMNS]
    for name, (change, summary, advice) in product(map(str, names), changes):
        changed = [_changed(row, name, change) for row in rows]
        kept = tuple(row for row in changed if row is not None)
        if len(kept) > len(rows) / 2:
            yield Repair(f"The column {name!r} {summary}", advice, kept)


def _of_text_numbers(rows: Sequence[PromptRow]) -> Iterator[Repair]:
    """Numbers in place of texts, also as the target of a puzzle, whose answer is an expression."""
    solved = puzzle_rows(rows) or rows
    for name in map(str, solved[0].columns if solved else {}):
        numbers = [_whole_number(row.columns.get(name)) for row in solved]
        kept = tuple(
            replace(row, columns={**row.columns, name: number})
            for row, number in zip(solved, numbers, strict=True)
            if number is not None
        )
        if len(kept) > len(solved) / 2:
            yield Repair(
                f"The column {name!r} holds text; the reward function compares it with numbers",
                "Convert it with int() or float(), in the function or in the data.",
                kept,
            )


def _whole_number(value: object) -> int | float | None:
    """The number that a text is; None for anything else."""
    number = number_of(value) if isinstance(value, str) else None
    return int(number) if number is not None and number.is_integer() else number


def _of_options(rows: Sequence[PromptRow]) -> Iterator[Repair]:
    """The letter of the right option in place of its text, and the other way round."""
    ways = (
        (option_of_text, "The answers are the texts of options, and the reward function reads "
         "letters", "Store the letter of the right option as the answer."),
        (letter_of_number, "The answers are numbers of options, and the reward function reads "
         "letters", "Store the letter of the right option as the answer."),
        (letter_of_place, "The answers are numbers of options, and the reward function reads "
         "letters", "Store the letter of the right option as the answer."),
        (option_of_letter, "The answers are letters of options, and the reward function reads "
         "their texts", "Store the text of the right option as the answer, or compare letters."),
    )  # fmt: skip
    for read, summary, advice in ways:
        others = [(row, read(row)) for row in rows]
        kept = tuple(_with_answer(row, other) for row, other in others if other)
        if len(kept) > len(rows) / 2:
            yield Repair(summary, advice, kept)


def _of_other_columns(
    reward: UserReward, rows: Sequence[PromptRow], forms: Sequence[str]
) -> Iterator[Repair]:
    """The values of another column in place of the answers.

    A function that reads both by their names, and pays for the other one in the rows as they are,
    has what it wants: an action and its target, for example.
    """
    own = {name for row in rows for name, value in row.columns.items() if str(value) == row.answer}
    for name in rows[0].columns if rows else {}:
        texts = [_short_text(row.columns.get(name)) for row in rows]
        kept = tuple(
            _with_answer(row, text)
            for row, text in zip(rows, texts, strict=True)
            if text and text != row.answer
        )
        if name in PROMPT_COLUMNS or len(kept) <= len(rows) / 2:
            continue
        as_they_are = [
            replace(row, answer=text) for row, text in zip(rows, texts, strict=True) if text
        ]
        reads_both = name in reward.parameters and bool(own.intersection(reward.parameters))
        if not (reads_both and _earns(reward, as_they_are, forms)):
            yield Repair(
                f"The answers are in the column {str(name)!r}, and the reward function gets those "
                "of another column",
                f"Pass the column {str(name)!r} to the reward function.",
                kept,
            )


def _short_text(value: object) -> str:
    is_short = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_short and len(str(value)) <= _MAX_SHORT else ""


def _with_answer(row: PromptRow, answer: str) -> PromptRow:
    """A row with another answer, also in the columns that hold the answer."""
    columns = {
        name: answer if str(value) == row.answer else value for name, value in row.columns.items()
    }
    return replace(row, columns=columns, answer=answer)


def _changed(row: PromptRow, name: str, change: Callable[[str], object]) -> PromptRow | None:
    """A row with another value in a column, also as its answer; None if nothing changes."""
    value = row.columns.get(name)
    if change is _as_text:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or number_of(row.answer or "") != value:
            return None
        return replace(row, columns={**row.columns, name: row.answer})
    if not isinstance(value, str):
        return None
    try:
        other = change(value)
    except (ValueError, SyntaxError, RecursionError, TypeError):
        return None
    if not isinstance(other, str) or other == value:
        return None
    answer = other if row.answer == value else row.answer
    return replace(row, columns={**row.columns, name: other}, answer=answer)


def _as_text(value: str) -> str:
    return value


def _decoded(value: str) -> object:
    """The text within a JSON text."""
    return json.loads(value) if value.lstrip().startswith('"') else None


def _python_as_json(value: str) -> object:
    """JSON for a dictionary or list that Python wrote; an error if it is JSON already."""
    content = ast.literal_eval(value) if value.lstrip()[:1] in "[{(" else None
    if not isinstance(content, dict | list | tuple):
        return None
    try:
        json.loads(value)
    except ValueError:
        return json.dumps(content)
    return None


_REPAIRS: tuple[Change, ...] = (
    (_as_text, "holds numbers; the reward function compares them with text",
     "Convert the answer to text with str(), in the function or in the data."),
    (_decoded, "holds JSON that was encoded twice", f"{_CODE} Call json.dumps() only once."),
    (_python_as_json, "holds Python's representation in place of JSON",
     f"{_CODE} Write json.dumps(value), not str(value)."),
    (html.unescape, "holds HTML entities", "Unescape the HTML of the source."),
    (final_answer, "holds whole solutions, and only their final answer earns a reward",
     "Extract the final answer when the data is loaded, such as the text after #### or in a box."),
    (str.strip, "has white space around the answers", "Strip the answers."),
)  # fmt: skip
"""Changes of a column that an error of the data makes necessary."""
