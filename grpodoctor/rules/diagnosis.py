"""What the rules say about a run: findings and their changes, and why other rules said nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grpodoctor.rules.base import Finding


@dataclass(frozen=True, slots=True)
class Change:
    """A finding that was raised, escalated or resolved."""

    kind: Literal["raised", "escalated", "resolved"]
    finding: Finding
    step: int
    """The step at which the change was detected: after the onset, or after the last sighting."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule that could not be examined because a metric is not logged."""

    code: str
    missing: tuple[str, ...]
    """The missing metrics; for alternatives, the best one."""
    how: str
    """How to log them."""


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """A rule that does not apply to this run."""

    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Defect:
    """A rule that raised an exception: a fault of the rule, not of the run."""

    code: str
    step: int
    """The first step at which it raised."""
    error: str
    """Type and message of the exception, on one line."""
    count: int = 1
    """Steps at which it raised."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The state of a run according to its rules.

    A rule appears in at most one of the first four fields. It appears in none if all its findings
    are resolved and too old to be kept, if it raised an exception and found nothing, or if it reads
    settings that the config does not contain.
    """

    findings: tuple[Finding, ...]
    """Active and resolved, most severe first, then by onset, then causes before symptoms."""
    skipped: tuple[Skipped, ...]
    not_applicable: tuple[Inapplicable, ...]
    quiet: tuple[str, ...]
    """Codes of the rules that were examined and saw nothing."""
    unmapped: tuple[str, ...]
    """Logged names that are not in the vocabulary."""
    defects: tuple[Defect, ...] = ()
    """Rules that raised an exception, by code."""
