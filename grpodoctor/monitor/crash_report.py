"""What a report says about the error with which a log ends.

A crash is no fault of the training: it changes neither the verdict nor the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.monitor.advice import Advice
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.runs.crash import Crash, CrashKind

_CAUTION = "the run ended out of GPU memory, so free some first"

_WHAT_TO_DO: Mapping[CrashKind, str] = {
    "gpu-memory": "restart from the last checkpoint with less GPU memory",
    "host-memory": "the machine's own memory (RAM) was full: start fewer processes per machine, or "
    "take a machine with more memory",
    "killed": "signal 9 is most often the out-of-memory killer of the machine or the scheduler: "
    "look for it in dmesg and in the job's record",
    "disk-full": "free space on the disk that the run writes to, and keep fewer checkpoints",
    "collective-timeout": "one rank waited for another: look for the first error in the logs of "
    "the other ranks",
    "gpu-fault": "run it again with CUDA_LAUNCH_BLOCKING=1, so that the traceback names the kernel",
    "lost-process": "the cause is the first error in the log of that process",
}
"""What to do where that is certain; another exception speaks for itself."""


@dataclass(frozen=True, slots=True)
class CrashReport:
    """The error with which a log ends, and what to do about it."""

    crash: Crash
    after_step: int | None
    """The last step that was read; None without one."""
    remedy: Advice | None = None
    """The remedy with its settings, if there is one for this kind of crash."""

    @property
    def what(self) -> str:
        """The error and its place, without a full stop."""
        step = f"after step {self.after_step}" if self.after_step is not None else ""
        place = ", ".join(filter(None, (self.crash.place, step)))
        where = f" ({place})" if place else ""
        return f"the log ends with an error{where}: {self.crash.message.rstrip('.')}"

    @property
    def line(self) -> str:
        """Where the run ended, with what, and what to do, on one line."""
        action = _WHAT_TO_DO.get(self.crash.kind, "")
        return f"{self.what}; {action}" if action else self.what

    def to_json(self) -> dict[str, Any]:
        """The `crash` object of the report."""
        return {
            "kind": self.crash.kind,
            "message": self.crash.message,
            "line": self.crash.line or None,
            "after_step": self.after_step,
            "what_to_do": _WHAT_TO_DO.get(self.crash.kind, ""),
            "remedy": self.remedy.to_json() if self.remedy else None,
        }


def remedy_for(kind: CrashKind) -> str | None:
    """The id of the remedy for a kind of crash; None if there is none."""
    return next((remedy.id for remedy in all_remedies() if remedy.crash == kind), None)


def with_caution(advice: Mapping[str, Advice], crash: Crash | None) -> dict[str, Advice]:
    """The remedies of a run, with a caution on those that need the memory that it does not have."""
    if crash is None or crash.kind != "gpu-memory":
        return dict(advice)
    return {
        name: replace(each, title=f"{each.title} ({_CAUTION})")
        if remedy_of(name).needs_memory
        else each
        for name, each in advice.items()
    }
