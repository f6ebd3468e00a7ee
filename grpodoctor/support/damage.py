"""Parts of input files that could not be used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """One line, or a whole file, that could not be used."""

    file: str
    line: int
    """Line number from 1; 0 for the whole file."""
    why: str
