"""Answers that are wrong in one place, made from the right one: mutants of the reference.

A sound verifier tells each of them from the right answer. One that does not, ignores the place: a
field, an argument, a condition of a query, the last test of a program.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from grpodoctor.preflight.answers.kinds.tool_calls import calls_in, json_content
from grpodoctor.preflight.answers.kinds.undeserving_answers import parts_of
from grpodoctor.preflight.texts.normal_form import number_of

MISSING_FIELD = "an object without its last field"
MORE_FIELDS = "an object with further fields"
MORE_THAN_RIGHT = frozenset({MORE_FIELDS})
"""Answers that may be right; only a higher reward than that of the right one is a fault."""
OTHER_CALL = "a call of another tool"
LIST_AND_MORE = "the right list and one element more"
OTHER_VALUE_IN_QUERY = "a query with another value"
NO_CONDITION = "a query without its condition"
TURNED = "a query with its comparison turned round"
LAST_TEST = "a program that is wrong for the last test"
RETURNS_NOTHING = "a program whose functions return nothing"
OTHER_NUMBER = "another number in the text"
OPPOSITE_SIGN = "the number with the opposite sign"
OPPOSITE_ORDER = "the list in the opposite order"
_MAX_PATHS = 8
"""Fields of an object that are changed one by one."""
_FURTHER = 6
"""Fields that no prompt asks for."""
_FAR = 0.3
"""How far a changed number is from the right one: further than any tolerance."""
_MAX_LETTERS = 4000
_QUERY = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
_LITERAL = re.compile(r"'[^']{1,80}'|(?<![\w.'])\d+(?:\.\d+)?(?![\w.'])")
_WHERE = re.compile(
    r"\s+where\b.*?(?=\s+(?:group|order|limit|union|having)\b|\)|;|$)", re.IGNORECASE | re.DOTALL
)
_COMPARISON = re.compile(r"(?<![<>=!])(<=|>=|<|>)(?![<>=])")
_NUMBER = re.compile(r"(?<![\w.])\d{1,9}(?:\.\d{1,6})?(?![\w]|\.\d)")
_ORDERED = re.compile(
    r"\b(?:sort|ascending|descending|chronological|in (?:the |that )?order|alphabetical)",
    re.IGNORECASE,
)
_MAX_WORDS = 12
"""Words of a text in which another number makes another answer."""


def near_misses(
    answer: str, answers: Sequence[str], prompt: str, turn: int
) -> Iterator[tuple[str, str]]:
    """Kinds of wrong answers, and the answer of each kind.

    Args:
        answer: the right answer.
        answers: the answers of all rows.
        prompt: the row's prompt.
        turn: number of the row, which chooses the place in turn.
    """
    if not answer.strip() or len(answer) > _MAX_LETTERS:
        return
    content = json_content(answer)
    if isinstance(content, dict | list) and content:
        yield from _objects(answer, content, answers)
    elif _QUERY.match(answer):
        yield from _queries(answer, turn)
    elif "\n" in answer.strip():
        yield from _programs(answer)
    else:
        yield from _texts(answer, answers, prompt, turn)


def _objects(answer: str, content: Any, answers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """One field after the other with another value, a missing field, another tool."""
    others = [other for each in answers[:_MAX_PATHS] if (other := json_content(each)) is not None]
    calls = calls_in(answer)
    for path in list(_leaves(content))[:_MAX_PATHS]:
        if calls and path[-1] == "name":
            continue
        changed = deepcopy(content)
        _set(changed, path, _other_value(_get(content, path), path, others))
        yield f"another value of {'.'.join(map(str, path))!r:.60}", json.dumps(changed)
    changed = deepcopy(content)
    if _drop_last(changed):
        yield MISSING_FIELD, json.dumps(changed)
    if isinstance(content, dict) and not calls:
        further = {f"field_{number}": "more" for number in range(_FURTHER)}
        yield MORE_FIELDS, json.dumps({**content, **further})
    names = [call.name for each in answers for call in calls_in(each)]
    other_names = [name for name in names if calls and name != calls[0].name]
    if other_names:
        name = json.dumps(calls[0].name)
        yield OTHER_CALL, answer.replace(name, json.dumps(other_names[0]), 1)


_Path = tuple[str | int, ...]


def _leaves(content: Any, path: _Path = ()) -> Iterator[_Path]:
    """The paths of all values that are neither objects nor lists."""
    pairs: Iterator[tuple[Any, Any]]
    if isinstance(content, Mapping):
        pairs = iter(content.items())
    elif isinstance(content, list):
        pairs = iter(enumerate(content))
    else:
        if path:
            yield path
        return
    for key, value in pairs:
        yield from _leaves(value, (*path, key))


def _get(content: Any, path: _Path) -> Any:
    for key in path:
        content = content[key]
    return content


def _set(content: Any, path: _Path, value: Any) -> None:
    _get(content, path[:-1])[path[-1]] = value


def _other_value(value: Any, path: _Path, others: Sequence[Any]) -> Any:
    """A value of the same type: that of another row, or a changed one."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + max(1, math.ceil(_FAR * abs(value)))
    for other in others:
        try:
            given = _get(other, path)
        except (KeyError, IndexError, TypeError):
            continue
        if isinstance(given, str) and given.casefold() != value.casefold():
            return given
    return f"no {value}"


def _drop_last(content: Any) -> bool:
    """Remove the last field of the first innermost object with at least two; whether there is one.

    The arguments of a call are such an object; its name and arguments are not.
    """
    if isinstance(content, list):
        return any(_drop_last(each) for each in content)
    if not isinstance(content, dict):
        return False
    if any(_drop_last(each) for each in content.values()):
        return True
    has_parts = any(isinstance(each, dict | list) and each for each in content.values())
    if len(content) < 2 or has_parts:
        return False
    content.popitem()
    return True


def _queries(answer: str, turn: int) -> Iterator[tuple[str, str]]:
    literals = list(_LITERAL.finditer(answer))
    if literals:
        chosen = literals[turn % len(literals)]
        text = chosen[0]
        other = "'none of them'" if text.startswith("'") else f"{float(text) * 2 + 7:g}"
        yield OTHER_VALUE_IN_QUERY, answer[: chosen.start()] + other + answer[chosen.end() :]
    if _WHERE.search(answer):
        yield NO_CONDITION, _WHERE.sub("", answer, count=1)
    if _COMPARISON.search(answer):
        signs = {"<": ">", ">": "<", "<=": ">", ">=": "<"}
        yield TURNED, _COMPARISON.sub(lambda match: signs[match[0]], answer, count=1)


def _programs(answer: str) -> Iterator[tuple[str, str]]:
    """A table of tested inputs whose last value is another one, and functions without a result."""
    try:
        tree = ast.parse(answer)
    except (SyntaxError, ValueError, RecursionError):
        return
    tables = [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and node.value.values
        and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "table"
    ]  # fmt: skip
    if tables and len(tables[0].values) > 1:
        tables[0].values[-1] = ast.Constant("none of them")
        yield LAST_TEST, ast.unparse(tree)
        return
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value]
    for node in returns:
        node.value = ast.Constant(None)
    if returns:
        yield RETURNS_NOTHING, ast.unparse(tree)


def _texts(
    answer: str, answers: Sequence[str], prompt: str, turn: int
) -> Iterator[tuple[str, str]]:
    parts = parts_of(answer)
    if parts:
        other = _other_part(parts, answers)
        if other:
            yield LIST_AND_MORE, ", ".join([*parts, other])
        if _ORDERED.search(prompt) and parts != parts[::-1]:
            yield OPPOSITE_ORDER, ", ".join(parts[::-1])
        return
    value = number_of(answer)
    if value is not None:
        if value > 0 and any((number_of(other) or 0) < 0 for other in answers):
            yield OPPOSITE_SIGN, f"-{answer.strip()}"
        return
    numbers = list(_NUMBER.finditer(answer))
    if numbers and len(answer.split()) <= _MAX_WORDS:
        chosen = numbers[turn % len(numbers)]
        changed = float(chosen[0]) + max(1, math.ceil(_FAR * float(chosen[0])))
        yield OTHER_NUMBER, answer[: chosen.start()] + f"{changed:g}" + answer[chosen.end() :]


def _other_part(parts: Sequence[str], answers: Sequence[str]) -> str:
    """An element of another row's list."""
    folded = {part.casefold() for part in parts}
    others = (part for other in answers for part in parts_of(other) or [other])
    return next((part for part in others if part.casefold() not in folded), "")
