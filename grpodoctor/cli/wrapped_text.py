"""Pages and lists for a terminal: wrapped at words, with what belongs together below its column.

A page is written for 96 columns. A narrower terminal would break its lines within words.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap

from grpodoctor.cli.terminal import columns

_ROW = re.compile(r"( *\S+(?: {2,}\S+)? {2,})(\S.*)")
"""A row of a list: its name, and what the name means in the last column."""
_SETTING = re.compile(r"( +)((?:--|\+{0,2}[\w.]+(?:=| --))\S*(?: \S+)*?)  ?# (.+)")
"""A setting to copy with a comment."""
_COPIED = re.compile(
    r"""[ ]+(?:--\w[\w-]*(?:[ ]\S+){0,2}|\+{0,2}[\w.]+=(?:\S+|[\[({'"].*[\])}'"])|grpodoctor[ ].*)
    (?:[ ][ ][#][ ].*)?""",
    re.VERBOSE,
)
"""A setting or a command to copy, which stays on one line."""
_NEW_LINE = re.compile(r"[-*•] |\d+\. |\w+ = ")
"""The start of a line that does not continue the one above."""
_LEAST = 24
"""Columns that a text needs next to its name; with fewer, it continues below the name."""
_INDENT = 4


def for_terminal(text: str) -> str:
    """A text as the terminal shows it; a pipe gets it as it is."""
    return wrapped(text, columns()) if sys.stdout.isatty() else text


def wrapped(text: str, width: int) -> str:
    """A page or a list in lines of at most `width` columns; what is to be copied may be longer."""
    lines = text.splitlines()
    if max(map(len, lines), default=0) <= width:
        return text
    return "\n".join(line for block in _blocks(lines) for line in _fitted(block, width))


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Paragraphs of prose, whose lines are joined; each other line is a separate block."""
    block: list[str] = []
    for line in lines:
        if block and not (_is_prose(line) and _is_prose(block[-1]) and _continues(block, line)):
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and not _ROW.fullmatch(line) and not _COPIED.fullmatch(line)


def _continues(block: Sequence[str], line: str) -> bool:
    return _depth(line) == _depth(block[0]) and not _NEW_LINE.match(line.strip())


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _fitted(block: Sequence[str], width: int) -> list[str]:
    if max(map(len, block)) <= width:
        return list(block)
    first = block[0]
    if setting := _SETTING.fullmatch(first):
        comment = _wrapped(setting[3], width, f"{setting[1]}# ", f"{setting[1]}# ")
        return [*comment, f"{setting[1]}{setting[2]}"]
    if _COPIED.fullmatch(first):
        return list(block)
    if row := _ROW.fullmatch(first):
        hanging = len(row[1]) if len(row[1]) <= width - _LEAST else _depth(first) + _INDENT
        return _wrapped(row[2], width, row[1], " " * hanging)
    indent = " " * _depth(first)
    hanging = 2 if first.lstrip().startswith("- ") else 0
    return _wrapped(" ".join(line.strip() for line in block), width, indent, indent + " " * hanging)


def _wrapped(text: str, width: int, first: str, further: str) -> list[str]:
    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )
