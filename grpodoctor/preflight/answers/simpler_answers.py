"""Simpler answers, for a reward function that rewards none of the data's own.

The column and the response are simplified alike. If correct answers then earn a reward, the
function cannot read what was taken away.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

Change = tuple[Callable[[str], object], str, str]
"""A change of a text, what the column had before, and what to do."""
_CURRENCY = re.compile(r"[$\u20ac\u00a3\u00a5]\s?(?=\d)|(?<=\d)\s?[$\u20ac\u00a3\u00a5%]")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}\b)")
_UNIT = re.compile(r"(-?\d[\d.,]*)\s?[^\W\d_]{1,12}\.?")
_ZEROS = re.compile(r"(-?\d+)\.0+")
_SIGNS = re.compile(r"[^\w\s.-]")


def _flat(answer: str) -> str:
    """A JSON object whose nested values are texts."""
    content = json.loads(answer)
    if not isinstance(content, Mapping) or not any(map(_is_nested, content.values())):
        return answer
    return json.dumps({key: _leaf(value) for key, value in content.items()})


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _leaf(value: Any) -> Any:
    """A value that is no object: of an object or a list, the last part."""
    while isinstance(value, dict | list) and value:
        value = list(value.values() if isinstance(value, dict) else value)[-1]
    return "" if isinstance(value, dict | list) else value


def _plain_letters(answer: str) -> str:
    folded = unicodedata.normalize("NFKD", answer)
    return folded.encode("ascii", "ignore").decode()


def _number_alone(answer: str) -> str:
    match = _UNIT.fullmatch(answer.strip())
    return match[1] if match else answer


def _one_line(answer: str) -> str:
    return " ".join(answer.split()) if "\n" in answer.strip() else answer


SIMPLER: tuple[Change, ...] = (
    (_flat, "holds nested JSON, and only flat objects earn a reward",
     "Parse the whole object: a pattern such as {.*?} ends at the first closing brace."),
    (lambda text: _GROUPED.sub("", text), "holds numbers with thousands separators",
     "Remove the separators from both numbers before they are compared."),
    (lambda text: _CURRENCY.sub("", text), "holds currency or percent signs",
     "Remove the sign from both answers before they are compared."),
    (_number_alone, "holds numbers with a unit", "Remove the unit from both answers, or from the "
     "data."),
    (lambda text: _ZEROS.sub(r"\1", text.strip()), "holds whole numbers with decimals, such as 5.0",
     "Compare numbers by value."),
    (str.lower, "has capital letters, and only lower case earns a reward",
     "Fold the case of both answers, not only that of the response."),
    (str.upper, "has lower-case letters, and only capital ones earn a reward",
     "Fold the case of both answers, not only that of the response."),
    (_plain_letters, "has letters outside ASCII", "Let the pattern accept all letters."),
    (lambda text: text.strip().rstrip("."), "has a full stop behind the answers",
     "Remove the full stop from both answers."),
    (_one_line, "holds answers of several lines", "Compile the pattern with re.DOTALL."),
    (lambda text: _SIGNS.sub("", text), "has signs that the function's parser drops or refuses",
     "Treat both answers alike before they are compared."),
)  # fmt: skip
"""Changes that make answers simpler."""
