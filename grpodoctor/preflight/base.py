"""The interface of a preflight check, and its results."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from grpodoctor.preflight.results.check_results import CheckResult

if TYPE_CHECKING:
    from grpodoctor.preflight.context import PreflightContext


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
    reads_config_only: ClassVar[bool] = False
    """Whether the run's config is enough for the check, without a model and prompts."""

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
        return {
            name: value
            for name, value in numbers.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    @classmethod
    def manual(cls) -> str:
        """The manual page."""
        return inspect.getdoc(cls) or ""
