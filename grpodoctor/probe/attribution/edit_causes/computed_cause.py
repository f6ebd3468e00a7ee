"""A cause that is named through a what-if edit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComputedCause:
    """A cause that is named through an edit."""

    id: str
    title: str
    """With `{side}` for the deviating side."""
    change: str
    """What the other engine does with the edit, with `{value}`."""
    remedy: str
