"""The interface of a preflight check, and its results."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from grpodoctor.rules.base import Severity

if TYPE_CHECKING:
    from grpodoctor.preflight.context import PreflightContext


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


class Check(ABC):
    """Base of all checks. The class holds the identity and the thresholds.

    The docstring of each check is its manual page, with the headings *What it sees*, *Why it
    matters*, *What to do*, *When it is wrong* and *References*.
    """

    code: ClassVar[str]
    """Uses the families of the rules; numbers start at 101."""
    name: ClassVar[str]
    former_names: ClassVar[tuple[str, ...]] = ()
    """Names from earlier versions, which users can still select."""
    summary: ClassVar[str]
    """One line for the list of checks."""
    references: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def examine(self, context: PreflightContext) -> CheckResult:
        """Examine the inputs of the run.

        Raises:
            GrpodoctorError: if an engine or a reward function fails.
        """

    @property
    def family(self) -> str:
        """The first three letters of the code."""
        return self.code[:3]

    @classmethod
    def thresholds(cls) -> dict[str, float]:
        """The check's thresholds by name."""
        numbers = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
        return {name: value for name, value in numbers.items() if isinstance(value, int | float)}

    @classmethod
    def manual(cls) -> str:
        """The manual page."""
        return inspect.getdoc(cls) or ""
