"""The results of a preflight check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from grpodoctor.rules.base import Severity


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A problem, or a figure that the user should know before the run."""

    severity: Severity
    summary: str
    """One sentence of at most 20 words with the numbers in it."""
    advice: tuple[str, ...] = ()
    """What to do, most useful first, one sentence each."""
    details: tuple[str, ...] = ()
    """The prompts, tokens or answers concerned; hostile text."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Measured values by name."""


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """The result of a check that could not run."""

    reason: str
    remedy: str = ""
    """What enables the check."""


CheckResult = Sequence[CheckFinding] | SkippedCheck
"""An empty sequence means that the check passed."""
