"""Examining a run that lies on disk, by the same code that follows a live one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpodoctor.frameworks.spelling import framework_of
from grpodoctor.monitor.examination import Examination
from grpodoctor.monitor.report_data import Dossier, dossier_of
from grpodoctor.rules import catalogue
from grpodoctor.runs.reading.framework_follower import ReadOptions
from grpodoctor.runs.reading.opening import ForeignRun, open_run
from grpodoctor.runs.reading.read_notes import told_short
from grpodoctor.runs.records import StepRecord


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run lies that was brought here to be read."""

    address: str
    notes: Sequence[str] = ()
    """What of it was left there, and why."""


def replay(
    path: Path,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    framework: str | None = None,
    options: ReadOptions | None = None,
    watch_steps: Callable[[Iterable[StepRecord]], Iterable[StepRecord]] = iter,
    origin: Origin | None = None,
) -> Dossier:
    """Examine a run from its first step to its last.

    Args:
        path: the run directory, or the logs that another framework left.
        select: rules to run, by code or prefix; empty for all.
        ignore: rules not to run.
        options: what the user says about a foreign log.
        framework: whose words to spell remedies in; the run's own if None.
        watch_steps: passes the steps on as they are read, for a progress bar.
        origin: where the run was brought from, if it does not lie at the path.

    Raises:
        RunError: if there is no run to read.
        ConfigError: if a selector matches no rule, or nobody knows the framework.
    """
    spoken = None if framework is None else framework_of(framework)
    rules = catalogue.select(catalogue.all_rules(), select, ignore)
    run = open_run(path, options)
    examination = Examination(path, run.manifest, rules)
    if origin is not None:
        examination.shown = origin.address
        examination.notes += origin.notes
    for record in watch_steps(run.steps):
        examination.observe(record)
    for event in run.events:
        examination.note(event)
    examination.note_damage(run.damage, run.damaged_lines)
    if isinstance(run, ForeignRun):
        readings = len(examination.engine.chart.series("reward/mean"))
        short = told_short(readings, examination.steps)
        examination.notes += [*run.notes, short] if short else run.notes
        examination.note_gaps(run.gaps)
        return dossier_of(examination, spoken, run.follower.rollouts)
    return dossier_of(examination, spoken)
