"""The columns in which data sets keep answers and options, and their usual contents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

ANSWER_COLUMNS = (
    "answer", "solution", "ground_truth", "gold", "label", "target", "reference", "answer_key",
    "answerKey", "final_answer", "expected_answer", "answer_number", "answers",
    "correct_answer", "gold_answer", "expected",
)  # fmt: skip
"""Columns that may hold the answer, in order of preference; then verl's `reward_model`."""
_PREFERENCE_COLUMN = "label"
"""A boolean in this column says whether a response is a good one (KTO), and is no answer."""
OPTION_COLUMNS = ("choices", "options", "endings")
"""Columns that may hold the options of a multiple-choice question."""
BLANK_ANSWERS = frozenset({
    "", "none", "null", "nan", "n/a", "[]", "{}", "todo", "tbd", "fixme", "placeholder", "...",
    "\u2026", "<answer>", "[answer]",
})  # fmt: skip
"""Texts that stand for a missing answer, folded to lower case."""
_SHARE_GPT_ROLES = {"human": "user", "gpt": "assistant"}


def value_of(row: Mapping[str, Any], name: str) -> tuple[str, Any]:
    """A column and its value, by its name in any case; an empty name if the row has none."""
    if not name:
        return "", None
    if name in row:
        return name, row[name]
    folded = name.casefold()
    return next(((key, row[key]) for key in row if str(key).casefold() == folded), ("", None))


def answer_of(row: Mapping[str, Any], named: str = "") -> str | None:
    """The reference answer of a row; None if it has none, or a blank one.

    Args:
        row: the columns.
        named: the column that the user named; empty to search the usual ones.
    """
    return next((text for text in _answers(row, named) if text is not None), None)


def has_blank_answer(row: Mapping[str, Any], named: str = "") -> bool:
    """Whether a row has a place for an answer, and nothing in it.

    An object, such as the numbers and the target of a puzzle, is an answer that is not a text.
    """
    values = list(_answer_values(row, named))
    return bool(values) and not any(_is_filled(value) for value in values)


def blank_value(row: Mapping[str, Any], named: str = "") -> Any:
    """The first value in the places for an answer that is not None; None if there is none."""
    return next((value for value in _answer_values(row, named) if value is not None), None)


def _answers(row: Mapping[str, Any], named: str) -> list[str | None]:
    return [_answer_text(value) for value in _answer_values(row, named)]


def _answer_values(row: Mapping[str, Any], named: str) -> Iterator[Any]:
    for name in (named,) if named else ANSWER_COLUMNS:
        column, value = value_of(row, name)
        is_preference = name == _PREFERENCE_COLUMN and isinstance(value, bool) and not named
        if column and not is_preference:
            yield value
    reward_model = row.get("reward_model")
    if not named and isinstance(reward_model, Mapping) and "ground_truth" in reward_model:
        yield reward_model["ground_truth"]


def _is_filled(value: object) -> bool:
    is_object = isinstance(value, list | Mapping) and bool(value)
    return is_object or _answer_text(value) is not None


def _answer_text(value: object) -> str | None:
    if isinstance(value, list) and len(value) > 1 and all(isinstance(x, bool) for x in value):
        return None  # one truth value for each part of the answer, and no alternatives
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, Mapping) and len(value) == 1:  # {"value": "42"}
        (value,) = value.values()
    if not isinstance(value, str | int | float):
        return None
    if isinstance(value, float):
        value = None if math.isnan(value) else f"{value:.15g}"
    text = "" if value is None else str(value)
    return None if text.strip().casefold() in BLANK_ANSWERS else text


def flat_columns(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a row with dotted names, such as `reward_model.ground_truth`."""
    values: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping) and value:
            values |= flat_columns(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value
    return values


def conversation_of(value: object) -> tuple[Mapping[str, Any], ...] | None:
    """The messages of a conversation; None if a value is something else."""
    if not isinstance(value, list) or not value:
        return None
    messages = [_message(entry) for entry in value]
    return None if None in messages else tuple(each for each in messages if each is not None)


def messages_in(value: Mapping[str, Any]) -> list[Any] | None:
    """The messages of an object: a list below `messages`, or the object as the only message."""
    listed = value.get("messages")
    if isinstance(listed, list) and listed:
        return listed
    return [value] if conversation_of([value]) else None


def messages_of_roles(row: Mapping[str, Any]) -> list[Any] | None:
    """The messages of a row with a column for each role: `user`, and perhaps `system`."""
    texts = {role: row.get(role) for role in ("system", "user")}
    if not isinstance(texts["user"], str) or " " not in texts["user"].strip():
        return None  # the name of a user has no blanks
    return [
        {"role": role, "content": text}
        for role, text in texts.items()
        if isinstance(text, str) and text.strip()
    ]


def _message(entry: object) -> Mapping[str, Any] | None:
    """A message with its role; keys that a table added without a value are left out."""
    if not isinstance(entry, Mapping):
        return None
    if isinstance(entry.get("from"), str):  # ShareGPT
        role = _SHARE_GPT_ROLES.get(entry["from"], entry["from"])
        return {"role": role, "content": text_of(entry.get("value"))}
    if not isinstance(entry.get("role"), str):
        return None
    filled = {key: value for key, value in entry.items() if value is not None}
    return {"content": "", **filled}


def text_of(content: object) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))
