"""What a line of console text says: pairs of key and number, found by patterns, never evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
_WRAPPED = rf"(?:np\.\w+\(|tensor\()?({NUMBER})\)?"
"""A number, or numpy's or torch's way of printing one."""

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_RAY = re.compile(r"^\s*\([\w.:/\- ]{1,80} pid=\d+(?:, ip=[\d.a-fA-F:]+)?\)\s?")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")

_DASHED = re.compile(r"\bstep:\s{0,4}(\d{1,12})(\s+-\s.*)$", re.DOTALL)
_DASHED_START = re.compile(r"\bstep:\s*\d+\s+-\s")
_DASHED_PAIR = re.compile(rf"([^\s:][^\s]{{0,200}}?):{_WRAPPED}\s*")
_DICT_PAIR = re.compile(
    rf"""(['"])((?:(?!\1).){{1,160}})\1\s*:\s*['"]?{_WRAPPED}['"]?\s*(?=[,}}\n])"""
)
_DICT_STEP = re.compile(
    r"\b(?:global[ _])?(?:step|rollout|iteration|perf|eval)[ :=#]+(\d+)\b", re.IGNORECASE
)
_BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[[\d:?<, .\w/]*")
_PIPED = re.compile(r"\bStep\s+(\d+)\s+\|\s+(.*)$")
_PIPED_PAIR = re.compile(rf"^\s*([A-Z][\w .()/-]*?):?\s+({NUMBER})\s*(%|[A-Za-z/]+)?\s*$")
_BULLET = re.compile(rf"^\s*[•*]\s+([A-Z][\w .()/-]{{2,80}}?):\s+({NUMBER})\s*(%|[A-Za-z/]+)?\s*$")
_CELL = re.compile(r"[A-Za-z_][\w./@ -]{0,160}")
_LINE = re.compile(r"[│┃|]")
_PLAIN_NUMBER = re.compile(NUMBER)
_HEADING = re.compile(
    r"\bStep\s{1,3}(\d{1,12})\b(?:[^\n]{0,80}?\bglobal(?:[ _]step)?:?\s{1,3}(\d{1,12}))?",
    re.IGNORECASE,
)

_LONGEST = 200_000
"""Characters of a line that are looked at."""


class Said(NamedTuple):
    """What a line says."""

    pairs: Mapping[str, float]
    step: int | None = None
    whole: bool = True
    """Whether the line is a row by itself; else its pairs belong to the block begun before."""


def cleaned(line: str) -> list[str]:
    """The segments of a line as a terminal would have shown them one after another.

    Colours go, Ray's prefix goes, and a carriage return begins a segment of its own.
    """
    plain = _ANSI.sub("", line[:_LONGEST])
    segments = (_RAY.sub("", segment) for segment in plain.split("\r"))
    return [shown for segment in segments if (shown := _REPEATED.sub("", segment)).strip()]


def begins_dashed(text: str) -> bool:
    """Whether a line opens verl's kind of row, which a narrow terminal may have wrapped."""
    return bool(_DASHED_START.search(text))


def dashed(text: str) -> Said | None:
    """`step:12 - actor/entropy:0.31 - actor/pg_loss:-0.002`, as verl prints it."""
    found = _DASHED.search(text)
    if found is None:
        return None
    parts = (part.strip() for part in found[2].split(" - "))
    matches = (_DASHED_PAIR.fullmatch(part) for part in parts if part)
    pairs = {match[1]: _number(match[2]) for match in matches if match}
    return Said(pairs, int(found[1])) if pairs else None


def dictionary(text: str) -> Said | None:
    """A dict of numbers, or of their texts, as transformers, OpenRLHF, slime and SkyRL print it."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    pairs = {key: _number(value) for _, key, value in _DICT_PAIR.findall(text[start : end + 1])}
    if len(pairs) < 2:
        return None
    step = _DICT_STEP.search(text[:start])
    return Said(pairs, int(step[1]) if step else None)


def progress(text: str) -> int | None:
    """The count of a progress bar."""
    found = _BAR.findall(text)
    return int(found[-1][0]) if found else None


def piped(text: str) -> Said | None:
    """`Step 1 | 12.3s | Loss 0.01 | Entropy 0.3`, as prime-rl prints it; keys get `console/`."""
    found = _PIPED.search(text)
    if found is None:
        return None
    matches = (_PIPED_PAIR.match(part) for part in found[2].split("|"))
    pairs = {f"console/{match[1]}": _scaled(match[2], match[3]) for match in matches if match}
    return Said(pairs, int(found[1])) if pairs else None


def bullet(text: str) -> Said | None:
    """`• Generation KL Error: 0.01`, a line of NeMo RL's block; keys get `console/`."""
    found = _BULLET.match(text)
    if found is None:
        return None
    return Said({f"console/{found[1]}": _scaled(found[2], found[3])}, whole=False)


def cells(text: str) -> Said | None:
    """`│ env/all/reward/total │ 0.4 │`, a line of a printed table."""
    parts = [part.strip() for part in _LINE.split(text)] if _LINE.search(text) else []
    pairs = {
        key: _number(value)
        for key, value in pairwise(parts)
        if _CELL.fullmatch(key) and _PLAIN_NUMBER.fullmatch(value)
    }
    return Said(pairs, whole=False) if pairs else None


def heading(text: str) -> int | None:
    """The step that a heading announces for the block below it."""
    if len(text) > 300 or "|" in text:
        return None
    found = _HEADING.search(text)
    if found is None:
        return None
    return int(found[2] or found[1])


def _scaled(text: str, unit: str) -> float:
    return _number(text) / 100 if unit == "%" else _number(text)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
