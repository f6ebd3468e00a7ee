"""Offline examination of a recorded run, by the code that follows a live one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.errors import OtherTrainingError
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.monitor.diagnosis.costs import gpus_of
from grpodoctor.monitor.examination import Examination
from grpodoctor.monitor.project_settings import ProjectSettings
from grpodoctor.monitor.report_data import ReportData, report_data, unexamined
from grpodoctor.monitor.sample_responses import ResponseSource
from grpodoctor.rules.base import Rule
from grpodoctor.runs.reading.opening import FrameworkRun, log_of, open_run
from grpodoctor.runs.reading.read_notes import short_run_note
from grpodoctor.runs.reading.read_options import ReadOptions

_OUTCOMES = ("reward/mean", "accuracy/train")
_SHARES_OF_GROUPS = (
    "groups/zero_variance_rate",
    "groups/all_correct_rate",
    "groups/all_incorrect_rate",
)
"""Metrics that only a log of reinforcement learning has."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run comes from: a store, a stream, or some of the rows of a log."""

    address: str
    """What reports name the run."""
    notes: Sequence[str] = ()
    """The files that were not downloaded, and why."""
    is_copy: bool = True
    """Whether the run was copied to a temporary place."""


def replay(
    path: Path,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    framework: str | None = None,
    project: ProjectSettings | None = None,
    options: ReadOptions | None = None,
    origin: Origin | None = None,
) -> ReportData:
    """Examine a run from its first step to its last.

    A log of another kind of training has the verdict "not examined".

    Args:
        path: the run directory, or the logs of another framework.
        select: rules to run, by code or prefix; empty for all.
        ignore: rules to skip.
        framework: framework whose keys the remedies show; the run's own if None.
        project: the project's settings; the other arguments override them.
        options: how to read the log of a framework.
        origin: where the run was downloaded from, if it is not at `path`.

    Raises:
        RunError: if there is no run to read.
        ConfigError: if a selector matches no rule, or the framework is unknown.
    """
    project = project or ProjectSettings()
    framework = framework or project.framework
    if framework is not None:
        framework = configurable_framework_named(framework).name
    rules = project.rules(select, ignore)
    try:
        examination, responses = _examine(path, rules, options, origin)
    except OtherTrainingError as error:
        has_log = path.is_file() and (origin is None or not origin.is_copy)
        why = f"this is {error.what}; {error.remedy}"
        return unexamined(origin.address if origin else str(path), why, str(path) * has_log)
    return report_data(examination, framework, responses)


def _examine(
    path: Path, rules: Sequence[Rule], options: ReadOptions | None, origin: Origin | None
) -> tuple[Examination, ResponseSource | None]:
    run = open_run(path, options)
    examination = Examination(path, run.manifest, rules)
    if origin is not None:
        examination.address = origin.address
        examination.notes += origin.notes
    for record in run.steps:
        examination.observe(record)
    if origin is None or not origin.is_copy:
        examination.log = str(log_of(path, run.follower if isinstance(run, FrameworkRun) else None))
    for event in run.events:
        examination.note(event)
    examination.note_damage(run.damage, run.damaged_lines)
    if not isinstance(run, FrameworkRun):
        return examination, None
    chart = examination.engine.chart
    readings = max(len(chart.series(name)) for name in _OUTCOMES)
    has_groups = any(len(chart.series(name)) for name in _SHARES_OF_GROUPS)
    too_short = short_run_note(readings, examination.steps, has_groups=has_groups)
    examination.notes += [*run.notes, too_short] if too_short else run.notes
    examination.crash = run.follower.crash
    examination.gpus = gpus_of(run.settings)
    examination.note_unused_keys(run.unused_keys)
    return examination, run.follower.rollouts
