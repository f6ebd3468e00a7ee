"""The functions that the unit tests of a row call."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

_ASSERTION = re.compile(r"\bassert\b([^\n]*)")
_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(")
_DEFINED = re.compile(
    r"\b(?:def|class|import|as)\s+([A-Za-z_]\w*)|^\s*([A-Za-z_]\w*)\s*=|\bimport\s+([\w, ]+)",
    re.MULTILINE,
)
PLACEHOLDERS = frozenset({"candidate", "solution", "func", "function", "f"})
"""Names of parameters through which harnesses call a function of any name."""


def tested_function(columns: Mapping[str, Any]) -> str:
    """The function that the assertions of a row call most often; empty if it has no such tests.

    Functions of Python, those that the tests define themselves, and placeholders of harnesses do
    not count.

    Args:
        columns: the columns of the row.
    """
    for value in columns.values():
        text = "\n".join(_texts(value))
        called: Counter[str] = Counter(
            name for match in _ASSERTION.finditer(text) for name in _CALL.findall(match[1])
        )
        defined = {
            name.strip()
            for groups in _DEFINED.findall(text)
            for name in ",".join(groups).split(",")
        }
        foreign = [
            name
            for name, _ in called.most_common()
            if not (hasattr(builtins, name) or name in defined or name in PLACEHOLDERS)
        ]
        if foreign:
            return foreign[0]
    return ""


def _texts(value: object) -> Iterator[str]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            yield each
