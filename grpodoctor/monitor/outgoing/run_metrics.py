"""The state of a watched run as OpenMetrics families.

This module imports `prometheus_client`, so it is imported only for `watch --metrics-port`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import get_args

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, StateSetMetricFamily
from prometheus_client.metrics_core import Metric

from grpodoctor.monitor.diagnosis.verdict import VerdictKind
from grpodoctor.monitor.snapshot import Snapshot
from grpodoctor.rules.base import SEVERITIES, Finding
from grpodoctor.support.safe_text import plain

_LONGEST_LABEL = 200


class RunMetrics:
    """A collector that serves the latest published state; a scrape costs the run nothing."""

    def __init__(self) -> None:
        self._families: tuple[Metric, ...] = ()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the state that scrapes see."""
        self._families = tuple(families_of(snapshot, time.time()))

    def collect(self) -> Iterable[Metric]:
        """The families; `prometheus_client` calls it for each scrape."""
        return self._families


def families_of(snapshot: Snapshot, now: float) -> Iterator[Metric]:
    """The metric families of a snapshot.

    Args:
        snapshot: the state of the run.
        now: Unix time of the snapshot.
    """
    yield _info(snapshot)
    yield from _progress(snapshot, now)
    yield from _vitals(snapshot)
    yield from _findings(snapshot.findings)
    kind = snapshot.verdict.kind if snapshot.verdict else None
    verdict = StateSetMetricFamily("grpodoctor_verdict", "The verdict on the run; one state is 1.")
    verdict.add_metric([], {name: name == kind for name in get_args(VerdictKind)})
    yield verdict


def _info(snapshot: Snapshot) -> Metric:
    facts = snapshot.facts
    names = {"path": facts.path, "framework": facts.framework, "model": facts.model}
    labels = {name: plain(text, limit=_LONGEST_LABEL) for name, text in names.items()}
    return InfoMetricFamily("grpodoctor_run", "The run that is watched.", value=labels)


def _progress(snapshot: Snapshot, now: float) -> Iterator[Metric]:
    facts, age = snapshot.facts, snapshot.age
    numbers = (
        ("last_step", "Number of the latest step.", facts.last_step),
        ("steps", "Steps that were read.", facts.steps),
        ("steps_per_minute", "Pace over the latest steps.", snapshot.steps_per_minute),
        (
            "last_step_timestamp_seconds",
            "Unix time of the latest step.",
            None if age is None else now - age,
        ),
        ("waiting", "1 if the run has not written anything yet.", int(snapshot.waiting)),
        ("finished", "1 if the run has finished.", int(snapshot.finished)),
        ("damaged_lines", "Lines of the log that could not be read.", snapshot.damage_total),
        ("rules_skipped", "Rules whose readings the run does not log.", len(snapshot.skipped)),
    )
    for name, text, number in numbers:
        if number is not None:
            yield GaugeMetricFamily(f"grpodoctor_{name}", text, value=number)


def _vitals(snapshot: Snapshot) -> Iterator[Metric]:
    """The vitals; one that does not apply to the run, or is not logged, has no sample."""
    now = GaugeMetricFamily("grpodoctor_vital", "Latest reading of a metric.", labels=["metric"])
    start = GaugeMetricFamily(
        "grpodoctor_vital_start", "Median of the run's first readings.", labels=["metric"]
    )
    for vital in snapshot.vitals:
        if vital.now is not None:
            now.add_metric([vital.metric], vital.now)
        if vital.start is not None:
            start.add_metric([vital.metric], vital.start)
    yield from (now, start)


def _findings(findings: Iterable[Finding]) -> Iterator[Metric]:
    labels = ["code", "name", "severity"]
    active = GaugeMetricFamily(
        "grpodoctor_finding_active", "1 for an active finding, 0 for a resolved one.", labels=labels
    )
    onset = GaugeMetricFamily(
        "grpodoctor_finding_onset_step", "Step at which a finding began.", labels=["code"]
    )
    counts = GaugeMetricFamily(
        "grpodoctor_findings", "Number of active findings.", labels=["severity"]
    )
    # A rule can have several findings in a run, and a label set may occur once: the latest counts.
    latest = {each.code: each for each in sorted(findings, key=_recency)}
    for finding in latest.values():
        active.add_metric([finding.code, finding.name, finding.severity], int(finding.active))
        onset.add_metric([finding.code], finding.onset_step)
    for severity in SEVERITIES:
        number = sum(each.active and each.severity == severity for each in latest.values())
        counts.add_metric([severity], number)
    yield from (active, onset, counts)


def _recency(finding: Finding) -> tuple[bool, int]:
    return finding.active, finding.onset_step
