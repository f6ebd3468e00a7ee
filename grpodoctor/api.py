"""The public functions for runs on disk: `check` and `open_run`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.errors import RunError
from grpodoctor.monitor.project_settings import ProjectSettings
from grpodoctor.monitor.replay import Origin, replay
from grpodoctor.report.run.run_report import RunReport
from grpodoctor.runs.reading.opening import FrameworkRun
from grpodoctor.runs.reading.opening import open_run as _open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import Event, Manifest, StepRecord
from grpodoctor.runs.rollouts import read_rollouts, rollout_files
from grpodoctor.support.files.remote_stores import is_remote
from grpodoctor.vocabulary.values import scalar

if TYPE_CHECKING:
    import pyarrow as pa


def check(
    path: str | os.PathLike[str],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    framework: str | None = None,
    format: str | None = None,  # noqa: A002 - named as the option of the command
    run_config: str | os.PathLike[str] | None = None,
    where: Mapping[str, str | int] | None = None,
) -> RunReport:
    """Diagnose one run from its logs and rollout dumps, like `grpodoctor check`.

    Unlike the command, it reads no settings file.

    Args:
        path: run directory or log of any framework; also an s3://, gs://, hf:// or https://
            address, whose report then has no responses.
        select: rules to run, by code, prefix or name; empty for all.
        ignore: rules to skip.
        framework: framework whose config keys the remedies use; the run's own if None.
        format: name of a framework or of a file format; detected if None.
        run_config: file with the run's config, if the log does not contain it.
        where: columns and the values of the rows to read, to choose one of several runs in a log.

    Raises:
        RunError: if there is no run to read, or several.
        ConfigError: if a selector matches no rule, or a name is unknown.
    """
    options = _read_options(format, run_config, where)
    if is_remote(str(path)):
        return _check_remote(str(path), select, ignore, framework, options)
    return RunReport(
        replay(
            Path(path),
            select=select,
            ignore=ignore,
            framework=framework,
            project=ProjectSettings(),
            options=options,
        )
    )


def _read_options(
    format_name: str | None,
    run_config: str | os.PathLike[str] | None,
    where: Mapping[str, str | int] | None,
) -> ReadOptions:
    return ReadOptions(
        format=format_name,
        run_config=None if run_config is None else Path(run_config),
        where={column: str(value) for column, value in (where or {}).items()},
    )


def _check_remote(
    url: str,
    select: Sequence[str],
    ignore: Sequence[str],
    framework: str | None,
    options: ReadOptions,
) -> RunReport:
    from grpodoctor.runs.reading.remote import local_run
    from grpodoctor.support.progress import NoProgress

    with local_run(url, NoProgress()) as run:
        data = replay(
            run.path,
            select=select,
            ignore=ignore,
            framework=framework,
            options=replace(options, remote_dumps=run.remote_dumps),
            origin=Origin(url, run.notes),
        )
    return RunReport(replace(data, responses=None))  # the files are gone


class RecordedRun:
    """A run on disk as tables. It is read when a table is asked for.

    Args:
        path: the run directory, or the logs of another framework.
        options: how to read the log of a framework.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self._run = _open_run(path, options)

    @property
    def path(self) -> Path:
        """The run directory or log."""
        return self._run.path

    @property
    def manifest(self) -> Manifest:
        """The constant facts of the run: framework, model, versions, knobs, config."""
        return self._run.manifest

    @property
    def events(self) -> tuple[Event, ...]:
        """The run's journal: findings and treatments."""
        return tuple(self._run.events)

    @cached_property
    def records(self) -> tuple[StepRecord, ...]:
        """The steps with their typed values."""
        return tuple(self._run.steps)

    def steps(self) -> pa.Table:
        """One row per step, one column per metric; `.to_pandas()` makes a data frame.

        A value that is absent or not applicable is null. A reading with several numbers, such as a
        histogram, is its mean, rate, extreme or median.
        """
        import pyarrow as pa

        names = sorted({name for record in self.records for name in record.values})
        columns: dict[str, pa.Array] = {
            "step": pa.array([record.step for record in self.records], pa.int64()),
            "time": pa.array([record.time for record in self.records], pa.float64()),
        }
        for name in names:
            readings = (record.values.get(name) for record in self.records)
            numbers = [None if reading is None else scalar(reading) for reading in readings]
            columns[name] = pa.array(numbers, pa.float64())
        return pa.table(columns)

    @property
    def rollout_steps(self) -> tuple[int, ...]:
        """The steps whose responses are on disk."""
        if isinstance(self._run, FrameworkRun):
            _ = self.records  # the places of the responses are known once the steps were read
            return tuple(sorted(self._run.follower.rollouts.steps))
        return tuple(rollout_files(self.path))

    def rollouts(self, step: int | None = None) -> pa.Table:
        """One row per response, of one step or of all of them.

        Args:
            step: the step; all steps if None, which needs memory for all responses.

        Raises:
            RunError: if there are no responses.
        """
        import pyarrow as pa

        wanted = self.rollout_steps if step is None else (step,)
        tables = [self._responses(each) for each in wanted]
        if not tables:
            raise RunError(
                "the run has no responses on disk",
                where=str(self.path),
                remedy="record with a depth other than off, or log the completions",
            )
        return pa.concat_tables(tables, promote_options="default")

    def _responses(self, step: int) -> pa.Table:
        import pyarrow as pa

        if not isinstance(self._run, FrameworkRun):
            return read_rollouts(self.path, step)
        _ = self.records
        rows = [{"step": step, **dict(row)} for row in self._run.rollouts(step)]
        if not rows:
            raise RunError(f"no responses for step {step}", where=str(self.path))
        return pa.Table.from_pylist(rows)

    def __iter__(self) -> Iterator[StepRecord]:
        return iter(self.records)


def open_run(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - named as the option of the command
    run_config: str | os.PathLike[str] | None = None,
    where: Mapping[str, str | int] | None = None,
) -> RecordedRun:
    """Open a run on disk, of our recorder or of any framework.

    Args:
        path: the run directory, or the logs of another framework.
        format: name of a framework or of a file format; detected if None.
        run_config: file with the run's config, if the log does not contain it.
        where: columns and the values of the rows to read, to choose one of several runs in a log.

    Raises:
        RunError: if the path is missing, or no file in it can be read.
        ConfigError: if the format is unknown.
    """
    return RecordedRun(Path(path), _read_options(format, run_config, where))
