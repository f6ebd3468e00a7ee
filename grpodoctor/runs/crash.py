"""How a program stopped, as the end of its printed log shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CrashKind = Literal[
    "gpu-memory",
    "host-memory",
    "killed",
    "disk-full",
    "collective-timeout",
    "gpu-fault",
    "lost-process",
    "exception",
]
"""What stopped the program. `lost-process`: another process of the job failed first, and the log
does not show why. `exception`: any other error."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The error with which a log ends."""

    kind: CrashKind
    message: str
    """The exception and its message, at most about 100 characters."""
    line: int = 0
    """Line of the log, from 1; 0 if it is not known."""

    @property
    def place(self) -> str:
        """The line in the log, such as `line 120`; empty if it is not known."""
        return f"line {self.line}" if self.line else ""
