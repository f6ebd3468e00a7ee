"""Names of runs that fit into a column of a terminal and differ from one another."""

from __future__ import annotations

from collections.abc import Sequence

_CUT = "…"
_LEAST_BEFORE = 4
"""Letters that are left of what is before the last part of a path."""


def distinct_names(names: Sequence[str], width: int) -> list[str]:
    """Names of at most `width` characters, as different from one another as the whole names.

    A name that is too long loses its first directories: its shortest end that no other name has is
    left. If that is too long as well, letters before its last part or in its middle are left out.
    If names would then look the same, they continue on further lines.

    Args:
        names: paths, or other names.
        width: characters of a line.
    """
    ends = [name if len(name) <= width else _end_of(name, names) for name in names]
    if max(map(len, ends), default=0) <= width:
        return ends
    choices = [[_with_last_part(end, width) for end in ends]]
    choices += [
        [_without_middle(end, width, kept) for end in ends]
        for kept in range((width - 1) // 2, max(width - 1, 1))
    ]
    best = max(choices, key=lambda each: len(set(each)), default=ends)
    return best if len(set(best)) == len(set(names)) else [_on_lines(each, width) for each in names]


def _end_of(name: str, names: Sequence[str]) -> str:
    """The last parts of a path that tell it apart from the others; the whole path if none do."""
    parts = name.split("/")
    others = [other.split("/") for other in names if other != name]
    for count in range(1, len(parts)):
        if not any(other[-count:] == parts[-count:] for other in others):
            return min(f"{_CUT}/{'/'.join(parts[-count:])}", name, key=len)
    return name


def _with_last_part(name: str, width: int) -> str:
    """A path with its last part whole, if there is room for some letters before it."""
    last = len(name) - name.rfind("/")
    return _without_middle(name, width, last if last + _LEAST_BEFORE < width else width // 2)


def _without_middle(name: str, width: int, kept: int) -> str:
    """A name without the letters between its start and its last `kept` ones."""
    if len(name) <= width:
        return name
    return f"{name[: width - 1 - kept]}{_CUT}{name[len(name) - kept :]}"


def _on_lines(name: str, width: int) -> str:
    return "\n".join(name[at : at + width] for at in range(0, len(name), max(width, 1)))
