"""Directories that hold several runs, and logs with several rows per step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
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

_PATTERN = 0.8
"""Share of steps with several rows from which the log is written that way on purpose."""


class _LogStart(NamedTuple):
    """The first steps of a log."""

    file: LogFile
    steps: dict[int, Mapping[str, Reading]]


class _Difference(NamedTuple):
    step: int
    metric: str
    values: tuple[float, float]


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

    Two logs in one format that begin at the same step and have different values belong to two runs.
    A diagnosis of their mixture would describe neither.

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
    shown: _Difference | None = None
    for one, other in combinations(starts.values(), 2):
        difference = _difference(one, other)
        if difference is not None:
            files |= {one.file.log: one.file, other.file.log: other.file}
            shown = shown or difference
    if shown is not None:
        raise _mixed_runs_error(path, list(files.values()), shown)


def _difference(one: _LogStart, other: _LogStart) -> _Difference | None:
    """The first differing value if two logs differ like two runs; else None."""
    if one.file.reader.name != other.file.reader.name:
        return None
    shared = sorted(one.steps.keys() & other.steps.keys())
    first = shared[:_MIN_STEPS]
    at_start = first and first[-1] in sorted(one.steps)[: 2 * _MIN_STEPS]
    if len(shared) < _MIN_STEPS or not at_start:
        return None
    if first[-1] not in sorted(other.steps)[: 2 * _MIN_STEPS]:
        return None  # a resumed job repeats a few steps
    pairs = list(_pairs(one, other, shared))
    differing = [pair for pair in pairs if readings_differ(*pair[2])]
    if len(pairs) < _MIN_VALUES or len(differing) <= _TWO_RUNS * len(pairs):
        return None
    step, metric, (left, right) = differing[0]
    return _Difference(step, metric, (scalar(left) or 0.0, scalar(right) or 0.0))


def _pairs(
    one: _LogStart, other: _LogStart, steps: Sequence[int]
) -> Iterator[tuple[int, str, tuple[Reading, Reading]]]:
    for step in steps:
        left, right = one.steps[step], other.steps[step]
        for metric in sorted(left.keys() & right.keys()):
            if not metric.startswith(_PER_LOG_METRICS):
                yield step, metric, (left[metric], right[metric])


def _mixed_runs_error(path: Path, files: Sequence[LogFile], shown: _Difference) -> MixedRunsError:
    paths = [file.reader.path for file in files]
    newest = max(paths, key=_written_at)
    names = [_name(log, path) for log in sorted(paths)]
    return MixedRunsError(
        f"the directory contains {len(names)} runs: {name_some(names)} start at the same step but "
        f"have different values ({shown.metric} at step {shown.step}: {shown.values[0]:.4g} and "
        f"{shown.values[1]:.4g})",
        where=str(path),
        remedy=f"pass one of them; {_name(newest, path)} is the newest",
    )


def _name(file: Path, directory: Path) -> str:
    return str(file.relative_to(directory)) if file.is_relative_to(directory) else file.name


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
