"""Directories that hold several runs, and logs with several rows per step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from grpodoctor.errors import MixedRunsError, name_some
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.reading.log_files import LogFile
from grpodoctor.runs.reading.rows.step_assembly import readings_differ
from grpodoctor.vocabulary.values import Reading, scalar

_MIN_STEPS = 5
"""Steps that two logs must share, and steps with several rows that make a pattern."""

_MIN_VALUES = 10
_TWO_RUNS = 0.5
"""Share of differing values from which two logs are two runs; in one run nearly none differ."""

_PER_LOG_METRICS = ("time/", "optimizer/learning_rate", "staleness/")
"""Metrics that cannot distinguish runs: clocks differ within a run, schedules agree between runs.
"""

_SAME_METRICS = 0.6
"""Share of all metrics of two logs that both have, above which both are logs of training steps. The
log of an evaluation has only a few of them."""

_PATTERN = 0.8
"""Share of steps with several rows from which the log is written that way on purpose."""


class _LogStart(NamedTuple):
    """The first steps of a log."""

    file: LogFile
    steps: dict[int, Mapping[str, Reading]]


def rows_per_step(rows: Sequence[LogRow]) -> int:
    """Return how many rows with the same keys a log has per step; 1 if it has one.

    A script that logs each micro-batch or each prompt writes several rows at nearly every step. A
    restarted job repeats only a few steps.
    """
    counts: list[int] = []
    previous: LogRow | None = None
    for row in rows:
        same_step = previous is not None and row.step is not None and row.step == previous.step
        if same_step and previous is not None and row.values.keys() == previous.values.keys():
            counts[-1] += 1
        else:
            counts.append(1)
        previous = row
    repeated = sorted(count for count in counts if count > 1)
    complete = counts[:-1] or counts  # the last step may be incomplete
    if len(repeated) < _MIN_STEPS or sum(count > 1 for count in complete) < _PATTERN * len(
        complete
    ):
        return 1
    return repeated[len(repeated) // 2]


def rows_per_step_notes(counts: Mapping[Path, int]) -> list[str]:
    """Notes that the rows of a step were averaged."""
    return [
        f"{path.name} has {count} rows per step: each step is their mean"
        for path, count in counts.items()
    ]


def refuse_mixed_runs(
    path: Path, rows: Sequence[tuple[LogFile, int, Mapping[str, Reading]]]
) -> None:
    """Check that the logs of a directory belong to one run.

    Two logs in one format that begin together belong to two runs if their values differ at the same
    steps, or if they have the same metrics at other steps. A diagnosis of their mixture would
    describe neither.

    Args:
        path: the directory.
        rows: log, step and readings of the first rows of each log.

    Raises:
        MixedRunsError: if there are several runs; the message names them.
    """
    starts: dict[str, _LogStart] = {}
    for file, step, readings in rows:
        start = starts.setdefault(file.log, _LogStart(file, {}))
        start.steps.setdefault(step, readings)
    files: dict[str, LogFile] = {}
    shown = ""
    for one, other in combinations(starts.values(), 2):
        difference = _difference(one, other)
        if difference:
            files |= {one.file.log: one.file, other.file.log: other.file}
            shown = shown or difference
    if shown:
        raise _mixed_runs_error(path, list(files.values()), shown)


def _difference(one: _LogStart, other: _LogStart) -> str:
    """What shows that two logs belong to two runs; empty if nothing does."""
    if one.file.reader.name != other.file.reader.name:
        return ""
    shared = sorted(one.steps.keys() & other.steps.keys())
    if not _begin_together(one, other):
        return ""
    if not _shares_start(one, other, shared) and not _has_other_steps(one, other):
        return ""
    if len(shared) < _MIN_STEPS:
        return f"the same metrics at other steps ({_first_steps(one)} and {_first_steps(other)})"
    pairs = list(_pairs(one, other, shared))
    differing = [pair for pair in pairs if readings_differ(*pair[2])]
    if len(pairs) < _MIN_VALUES or len(differing) <= _TWO_RUNS * len(pairs):
        return ""
    step, metric, values = differing[0]
    left, right = (scalar(value) or 0.0 for value in values)
    return f"different values ({metric} at step {step}: {left:.4g} and {right:.4g})"


def _first_steps(log: _LogStart) -> str:
    return ", ".join(map(str, sorted(log.steps)[:2]))


def _begin_together(one: _LogStart, other: _LogStart) -> bool:
    """Whether two logs begin within two steps of the sparser one; a resumed job begins later."""
    steps = [sorted(log.steps) for log in (one, other)]
    if min(map(len, steps)) < _MIN_STEPS:
        return False
    interval = max(median_low(later - step for step, later in pairwise(each)) for each in steps)
    return abs(steps[0][0] - steps[1][0]) <= 2 * interval


def _shares_start(one: _LogStart, other: _LogStart, shared: Sequence[int]) -> bool:
    """Whether both logs have the same first steps."""
    if len(shared) < _MIN_STEPS:
        return False
    last = shared[_MIN_STEPS - 1]
    return all(last in sorted(log.steps)[: 2 * _MIN_STEPS] for log in (one, other))


def _has_other_steps(one: _LogStart, other: _LogStart) -> bool:
    """Whether two logs have the same metrics at other steps.

    One run logs every step and one every tenth, or both every tenth, but one from step 5 on.
    """
    if min(len(one.steps), len(other.steps)) < 2 * _MIN_STEPS:
        return False
    names, others = (_metrics_of(log) for log in (one, other))
    return len(names & others) > _SAME_METRICS * len(names | others)


def _metrics_of(log: _LogStart) -> set[str]:
    names = (name for readings in log.steps.values() for name in readings)
    return {name for name in names if not name.startswith(_PER_LOG_METRICS)}


def _pairs(
    one: _LogStart, other: _LogStart, steps: Sequence[int]
) -> Iterator[tuple[int, str, tuple[Reading, Reading]]]:
    for step in steps:
        left, right = one.steps[step], other.steps[step]
        for metric in sorted(left.keys() & right.keys()):
            if not metric.startswith(_PER_LOG_METRICS):
                yield step, metric, (left[metric], right[metric])


def _mixed_runs_error(path: Path, files: Sequence[LogFile], shown: str) -> MixedRunsError:
    paths = [file.reader.path for file in files]
    newest = max(paths, key=_written_at)
    names = [_name(log, path) for log in sorted(paths)]
    return MixedRunsError(
        f"the directory contains {len(names)} runs: {name_some(names)} begin together but have "
        f"{shown}",
        where=str(path),
        remedy=f"pass one of them; {_name(newest, path)} is the newest",
    )


def several_runs_error(path: Path, column: str, names: Sequence[str]) -> MixedRunsError:
    """The error for a log whose column tells several runs apart.

    Args:
        path: the log.
        column: the column.
        names: its values so far.
    """
    example = shlex.quote(f"{column}={names[-1]}")
    return MixedRunsError(
        f"the log has several runs, which its column {column} tells apart",
        where=str(path),
        remedy=f"choose one, such as --where {example}; `grpodoctor check` lists all of them",
    )


def _name(file: Path, directory: Path) -> str:
    return str(file.relative_to(directory)) if file.is_relative_to(directory) else file.name


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
