"""The "did you mean" part of an error message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from grpodoctor.errors import ConfigError

_CLOSE = 0.6
"""Smallest `difflib` ratio of two similar names; suggestions below it mislead."""
_MOST_LISTED = 30
_MOST_NAMED = 3
_MOST_RANKED = 10
"""`difflib` ranks two swapped letters like any other name that shares all letters but one."""


def near_names(name: str, known: Iterable[str], similarity: float = _CLOSE) -> list[str]:
    """Return at most three known names similar to a mistyped one, most similar first.

    Names that begin with all of it as a part come before those: `mis` is short for `mis_token`.
    """
    known = list(known)
    by_folded = {candidate.lower().replace("_", "-"): candidate for candidate in reversed(known)}
    folded = name.strip().lower().replace("_", "-")
    near = difflib.get_close_matches(folded, by_folded, n=_MOST_RANKED, cutoff=similarity)
    near.sort(key=lambda candidate: sorted(candidate) != sorted(folded))  # swapped letters first
    longer = [candidate for candidate in by_folded if candidate.startswith(f"{folded}-")]
    near = list(dict.fromkeys([*sorted(longer), *near])) if folded else near
    return [by_folded[candidate] for candidate in near[:_MOST_NAMED]]


def as_spelled(name: str, known: Iterable[str]) -> str:
    """The known name that differs only in case, hyphens and underscores; else the name itself."""
    known = tuple(known)
    alike = [each for each in known if _letters(each) == _letters(name)]
    return alike[0] if name not in known and len(alike) == 1 else name


def _letters(name: str) -> str:
    return name.strip().lower().replace("_", "").replace("-", "")


def did_you_mean(name: str, known: Iterable[str], choices: str = "") -> str:
    """Return the remedy for an unknown name: similar names, or all names if none is similar.

    Args:
        name: the name as the user wrote it.
        known: all valid names.
        choices: what to use if no name is similar; the valid names if empty.
    """
    known = sorted(known)
    near = near_names(name, known)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if choices:
        return f"use {choices}"
    if len(known) > _MOST_LISTED:
        return f"use one of {', '.join(known[:_MOST_LISTED])}, …"
    return f"use one of {', '.join(known)}"


def check_name(name: str, known: Iterable[str], what: str, *, where: str = "") -> None:
    """Check that a name is known.

    Args:
        name: the name as the user wrote it.
        known: all valid names.
        what: noun for the error message, such as "loss".
        where: option or key that holds the name.

    Raises:
        ConfigError: if the name is unknown; the message suggests similar names.
    """
    known = tuple(known)
    if name not in known:
        raise ConfigError(
            f"unknown {what} {name[:60]!r}", where=where, remedy=did_you_mean(name, known)
        )
