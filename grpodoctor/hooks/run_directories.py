"""The directory to record a training in."""

from __future__ import annotations

import logging
from itertools import count
from pathlib import Path

from grpodoctor.runs.records import STEPS

_log = logging.getLogger("grpodoctor")


def unused_directory(wanted: Path, *, resume: bool) -> Path:
    """The wanted directory, or one next to it if it already has another run.

    A script that is started twice keeps both runs. A training that resumes continues the run.

    Args:
        wanted: the directory that the user named, or a default.
        resume: whether the training continues from a checkpoint.
    """
    if resume or not _has_steps(wanted):
        return wanted
    numbered = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    chosen = next(directory for directory in numbered if not _has_steps(directory))
    _log.warning("%s already has a run; recording to %s", wanted, chosen)
    return chosen


def _has_steps(directory: Path) -> bool:
    steps = directory / STEPS
    return steps.exists() and steps.stat().st_size > 0
