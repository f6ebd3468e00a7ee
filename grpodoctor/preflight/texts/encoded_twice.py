"""Texts that were encoded more often than decoded: escapes, and objects written as text."""

from __future__ import annotations

import re

_QUOTED = re.compile(
    r"```.*?```|`[^`\n]*`|\$[^$\n]*\$|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)|\u201c[^\u201d\n]*\u201d",
    re.DOTALL,
)
"""Code, formulas and quotations, in which a backslash means something else."""
_LATEX_NEGATIONS = r"(?!n(?:Rightarrow|Leftarrow|Leftrightarrow|V?[Vv]?[Dd]ash)\b)"
_ESCAPE = re.compile(
    rf"(?<=[^\s\\])(?:\\{_LATEX_NEGATIONS}[nrt])+(?=[\s\\A-Z0-9#*(-]|$)|(?<!\\)\\u[0-9a-fA-F]{{4}}"
)
"""A line break or a tab as two characters, directly after a text, or a character by its number."""
_WRITTEN_OBJECT = re.compile(
    r"""\s*(?:b?["']\s*)?(?:array\(\s*)?\[?\s*\{{1,2}.*?["'\\](?:role|from)["'\\]+\s*:\s*["'\\]""",
    re.DOTALL,
)
"""The beginning of a message or a list of messages, as JSON, Python or numpy writes it."""


def has_escapes(text: str) -> bool:
    """Whether a text contains line breaks, tabs or characters as escape sequences."""
    return "\\" in text and bool(_ESCAPE.search(_QUOTED.sub(" ", text)))


def is_written_object(text: str) -> bool:
    """Whether a text is a message, or a list of messages, that was converted to text."""
    return bool(_WRITTEN_OBJECT.match(text))
