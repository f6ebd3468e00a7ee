"""What a directory holds beside one run: another run, or several rows for each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from grpodoctor.errors import RunError, name_some
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.reading.log_files import LogFile
from grpodoctor.runs.reading.step_assembly import readings_differ
from grpodoctor.vocabulary.values import Reading, scalar

_FEWEST_STEPS = 5
"""Steps that two logs must share, and steps of several rows that are a habit."""

_FEWEST_VALUES = 10
_TWO_RUNS = 0.5
"""Share of the shared numbers that differ in two runs. In two logs of one run nearly none do."""

_OWN_TO_A_LOG = ("time/", "optimizer/learning_rate", "staleness/")
"""Metrics that tell no run from another: clocks are read twice, schedules are alike."""

_HABIT = 0.8
"""Share of the steps that have several rows each where that is how the log is written."""


class _Sample(NamedTuple):
    """The beginning of a log."""

    file: LogFile
    steps: dict[int, Mapping[str, Reading]]


class _Difference(NamedTuple):
    step: int
    metric: str
    values: tuple[float, float]


def rows_per_step(rows: Sequence[LogRow]) -> int:
    """How many rows a log has for each step, all with the same keys; 1 where it has one.

    A script that logs each micro-batch or each prompt does so at nearly every step; a job that was
    restarted writes a step again here and there.
    """
    counts: list[int] = []
    before: LogRow | None = None
    for row in rows:
        again = before is not None and row.step is not None and row.step == before.step
        if again and before is not None and row.values.keys() == before.values.keys():
            counts[-1] += 1
        else:
            counts.append(1)
        before = row
    several = sorted(count for count in counts if count > 1)
    whole = counts[:-1] or counts  # the last step may not be written to its end
    if len(several) < _FEWEST_STEPS or sum(count > 1 for count in whole) < _HABIT * len(whole):
        return 1
    return several[len(several) // 2]


def rows_per_step_notes(counts: Mapping[Path, int]) -> list[str]:
    """That the rows of a step were put together."""
    return [
        f"{path.name} has {count} rows for each step: the step is their mean"
        for path, count in counts.items()
    ]


def refuse_mixed_runs(
    path: Path, rows: Sequence[tuple[LogFile, int, Mapping[str, Reading]]]
) -> None:
    """See whether the logs of a directory are of one run.

    Two logs in one format that begin at the same step and give other numbers from there on are of
    two runs, and a diagnosis of their mixture would be of neither.

    Args:
        path: the directory.
        rows: which log, which step and what was read, of the beginning of each log.

    Raises:
        RunError: if there is more than one; it names them.
    """
    samples: dict[str, _Sample] = {}
    for file, step, readings in rows:
        sample = samples.setdefault(file.log, _Sample(file, {}))
        sample.steps.setdefault(step, readings)
    found: dict[str, LogFile] = {}
    shown: _Difference | None = None
    for one, other in combinations(samples.values(), 2):
        difference = _apart(one, other)
        if difference is not None:
            found |= {each.file.log: each.file for each in (one, other)}
            shown = shown or difference
    if shown is not None:
        raise _several(path, list(found.values()), shown)


def _apart(one: _Sample, other: _Sample) -> _Difference | None:
    """Where two logs differ as two runs do."""
    if one.file.reader.name != other.file.reader.name:
        return None
    shared = sorted(one.steps.keys() & other.steps.keys())
    begun = shared[:_FEWEST_STEPS]
    at_start = begun and begun[-1] in sorted(one.steps)[: 2 * _FEWEST_STEPS]
    if len(shared) < _FEWEST_STEPS or not at_start:
        return None
    if begun[-1] not in sorted(other.steps)[: 2 * _FEWEST_STEPS]:
        return None  # a job that was resumed does a few steps again
    pairs = list(_pairs(one, other, shared))
    apart = [pair for pair in pairs if readings_differ(*pair[2])]
    if len(pairs) < _FEWEST_VALUES or len(apart) <= _TWO_RUNS * len(pairs):
        return None
    step, metric, (left, right) = apart[0]
    return _Difference(step, metric, (scalar(left) or 0.0, scalar(right) or 0.0))


def _pairs(
    one: _Sample, other: _Sample, steps: Sequence[int]
) -> Iterator[tuple[int, str, tuple[Reading, Reading]]]:
    for step in steps:
        left, right = one.steps[step], other.steps[step]
        for metric in sorted(left.keys() & right.keys()):
            if not metric.startswith(_OWN_TO_A_LOG):
                yield step, metric, (left[metric], right[metric])


def _several(path: Path, files: Sequence[LogFile], shown: _Difference) -> RunError:
    paths = [each.reader.path for each in files]
    newest = max(paths, key=_written_at)
    names = [_name(each, path) for each in sorted(paths)]
    return RunError(
        f"{len(names)} runs, not one: {name_some(names)} begin at the same step and differ from "
        f"there on ({shown.metric} at step {shown.step}: {shown.values[0]:.4g} and "
        f"{shown.values[1]:.4g})",
        where=str(path),
        remedy=f"give one of them; the latest written is {_name(newest, path)}",
    )


def _name(file: Path, directory: Path) -> str:
    return str(file.relative_to(directory)) if file.is_relative_to(directory) else file.name


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
