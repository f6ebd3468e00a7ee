"""One bounded JSON object with everything known around a step, for programs and agents."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from grpodoctor.errors import ConfigError, RunError
from grpodoctor.monitor.bounded_json import (
    LONGEST_NAME,
    MOST_ENTRIES,
    UNTRUSTED,
    bounded,
    bounded_findings,
    short,
)
from grpodoctor.monitor.examination import Examination
from grpodoctor.monitor.outgoing.public_config import public_config
from grpodoctor.monitor.outgoing.worst_responses import worst_responses
from grpodoctor.monitor.project_settings import ProjectSettings
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.sample_responses import RecordedResponses, ResponseSource
from grpodoctor.monitor.vitals import Vital, vital_signs
from grpodoctor.runs.reading.opening import FrameworkRun, OpenedRun, open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import scalar

SNAPSHOT_VERSION = 1
"""Version of the JSON. New keys do not change it; a removed or changed key does."""
MOST_STEPS = 50
"""Largest number of steps on each side."""
_MOST_READINGS = 150


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What a snapshot shows."""

    around: int | None = None
    """The step; the run's last one if None."""
    window: int = 5
    """Recorded steps before and after it."""
    responses: int = 4
    """Responses with their texts."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """The state of the examination when the window had passed."""

    window: tuple[StepRecord, ...]
    report: Report
    vitals: tuple[Vital, ...]
    knobs: Mapping[str, Setting]


def step_snapshot(
    path: Path,
    request: SnapshotRequest | None = None,
    *,
    project: ProjectSettings | None = None,
    options: ReadOptions | None = None,
) -> dict[str, Any]:
    """The findings, vitals, worst responses and settings around a step.

    Findings and verdict are those that a watch showed at the end of the window. The object stays
    below 128 KiB, whatever the run contains.

    Args:
        path: the run directory, or the logs of another framework.
        request: what to show.
        project: the project's settings.
        options: how to read the log of a framework.

    Raises:
        RunError: if there is no run to read.
        ConfigError: if the run has no such step, or a number is out of bounds.
    """
    request = request or SnapshotRequest()
    _check(request)
    run = open_run(path, options)
    examination = Examination(path, run.manifest, (project or ProjectSettings()).rules())
    moment = _Search(examination, request).read(run)
    source = run.follower.rollouts if isinstance(run, FrameworkRun) else RecordedResponses(run.path)
    return _to_json(moment, request, run, source)


def _check(request: SnapshotRequest) -> None:
    if not 0 <= request.window <= MOST_STEPS:
        raise ConfigError(f"the window must be 0 to {MOST_STEPS} steps", where="--window")
    if not 0 <= request.responses <= 16:
        raise ConfigError("the number of responses must be 0 to 16", where="--responses")


class _Search:
    """Reads a run once, and keeps the state at the end of the window."""

    def __init__(self, examination: Examination, request: SnapshotRequest) -> None:
        self._examination, self._request = examination, request
        self._recent: deque[StepRecord] = deque(maxlen=2 * request.window + 1)
        self._moment: _Moment | None = None
        self._lowest: int | None = None

    def read(self, run: OpenedRun) -> _Moment:
        """The state around the step.

        Raises:
            RunError: if the run has no steps.
            ConfigError: if the run does not reach the step.
        """
        events = deque(run.events)
        for record in run.steps:
            while events and events[0].step <= record.step:
                self._examination.note(events.popleft())
            self._observe(record)
        if not self._recent or self._lowest is None:
            raise RunError("the run has no steps yet", where=str(run.path))
        last, around = self._recent[-1].step, self._request.around
        if around is not None and not self._lowest <= around <= last:
            raise ConfigError(
                f"the run has no step {around}",
                where=str(run.path)[:LONGEST_NAME],
                remedy=f"choose a step from {self._lowest} to {last}",
            )
        return self._moment or self._capture()

    def _observe(self, record: StepRecord) -> None:
        while self._recent and self._recent[-1].step >= record.step:
            self._recent.pop()  # the run went back: the later pass counts
            self._moment = None
        self._lowest = record.step if self._lowest is None else min(self._lowest, record.step)
        around = self._request.around
        if self._moment is None and around is not None and self._is_complete(record, around):
            self._moment = self._capture()
        self._examination.observe(record)
        self._recent.append(record)

    def _is_complete(self, record: StepRecord, around: int) -> bool:
        """Whether the window ends before this record."""
        after = sum(each.step > around for each in self._recent)
        return record.step > around and bool(self._recent) and after >= self._request.window

    def _capture(self) -> _Moment:
        chart = self._examination.engine.chart
        return _Moment(
            window=self._within(),
            report=self._examination.report(),
            vitals=tuple(vital_signs(chart)),
            knobs=dict(chart.knobs),
        )

    def _within(self) -> tuple[StepRecord, ...]:
        records = list(self._recent)
        around = records[-1].step if self._request.around is None else self._request.around
        centre = max((i for i, each in enumerate(records) if each.step <= around), default=0)
        window = self._request.window
        return tuple(records[max(0, centre - window) : centre + window + 1])


def _to_json(
    moment: _Moment, request: SnapshotRequest, run: OpenedRun, source: ResponseSource
) -> dict[str, Any]:
    window, report = moment.window, moment.report
    first, last = window[0].step, window[-1].step
    around = last if request.around is None else request.around
    centre = max((each.step for each in window if each.step <= around), default=first)
    facts = report.run.to_json()
    manifest = run.manifest
    return {
        "schema_version": SNAPSHOT_VERSION,
        "kind": "snapshot",
        "untrusted": UNTRUSTED,
        "run": {
            **{key: short(value) for key, value in facts.items()},
            "model": short(manifest.model),
            "seed": manifest.seed,
            "versions": {short(k): short(v) for k, v in list(manifest.versions.items())[:20]},
        },
        "window": {
            "around": around,
            "step": centre,
            "first_step": first,
            "last_step": last,
            "steps": [each.step for each in window],
        },
        "verdict": report.diagnosis.verdict.to_json(),
        **bounded_findings(report, first),
        "vitals": [_vital(each, window) for each in moment.vitals],
        "readings": _readings(next(each for each in window if each.step == centre)),
        "knobs": {short(name): short(value) for name, value in moment.knobs.items()},
        "knob_changes": [
            {"step": each.step, "knobs": dict(each.knobs)} for each in window if each.knobs
        ][:MOST_ENTRIES],
        "config": public_config(manifest.config),
        "treatments": [
            bounded(each.to_json()) for each in report.treatments if first <= each.step <= last
        ][-MOST_ENTRIES:],
        "responses": worst_responses(source, report.findings, window, centre, request.responses),
    }


def _vital(vital: Vital, window: Sequence[StepRecord]) -> dict[str, Any]:
    values = [
        None if (reading := record.values.get(vital.metric)) is None else scalar(reading)
        for record in window
    ]
    return {
        "label": vital.label,
        "metric": vital.metric,
        "start": vital.start,
        "trend": vital.trend,
        "values": values,
        "not_applicable": vital.why_not or None,
    }


def _readings(record: StepRecord) -> dict[str, float]:
    numbers = ((name, scalar(reading)) for name, reading in sorted(record.values.items()))
    known = ((short(name), number) for name, number in numbers if number is not None)
    return dict(islice(known, _MOST_READINGS))
