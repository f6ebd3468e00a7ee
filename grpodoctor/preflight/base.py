"""What a check of the preflight is, and what it may say."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from grpodoctor.rules.base import Severity

if TYPE_CHECKING:
    from grpodoctor.preflight.context import Patient


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that will go wrong, or that the user should know before the run."""

    severity: Severity
    summary: str
    """One sentence with the numbers in it, for a person."""
    advice: tuple[str, ...] = ()
    """What to do, best first, a sentence each."""
    details: tuple[str, ...] = ()
    """The prompts, tokens or answers concerned; hostile."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by name."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A check that could not be made."""

    why: str
    how: str = ""
    """What to give so that it can."""


Outcome = Sequence[Remark] | Skipped
"""Of a check; no remark at all if all is well."""


class Check(ABC):
    """Base of all checks: the class holds the identity and the thresholds.

    The docstring of each check is its manual page, with the headings *What it sees*, *Why it
    matters*, *What to do*, *When it is wrong* and *References*.
    """

    code: ClassVar[str]
    """Of the families of the rules, numbered from 101."""
    name: ClassVar[str]
    former_names: ClassVar[tuple[str, ...]] = ()
    """Names from earlier versions, which users may still type."""
    summary: ClassVar[str]
    """One line for the list of checks."""
    references: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def examine(self, patient: Patient) -> Outcome:
        """Look at what there is before the run.

        Raises:
            GrpodoctorError: if an engine or a reward function cannot be used at all.
        """

    @property
    def family(self) -> str:
        """The three letters of the code."""
        return self.code[:3]

    @classmethod
    def thresholds(cls) -> dict[str, float]:
        """The numbers that it judges by."""
        numbers = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
        return {name: value for name, value in numbers.items() if isinstance(value, int | float)}

    @classmethod
    def manual(cls) -> str:
        """The manual page."""
        return inspect.getdoc(cls) or ""
