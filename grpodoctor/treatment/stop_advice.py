"""The advice to stop a run whose treatments did not help."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from grpodoctor.rules.base import Finding
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event
from grpodoctor.treatment.treatments import Treatment

_OUTCOMES = ("accuracy/heldout", "reward/heldout", "accuracy/train", "reward/mean")
"""Metrics by which checkpoints are compared, the most informative first."""


def stop_advice(
    chart: Chart, findings: Sequence[Finding], history: Iterable[Treatment], *, is_limit: bool
) -> Event | None:
    """The journal line that advises to stop; None while there is no reason to.

    A reason is a critical finding that is active although at least one treatment was tried.

    Args:
        chart: the run so far.
        findings: the findings of the rules, active or not.
        history: the closed treatments.
        is_limit: whether the run has had all treatments that it may get.
    """
    critical = [each for each in findings if each.active and each.severity == "critical"]
    undone = [each.remedy for each in history if each.state == "undone"]
    if not critical or not undone:
        return None
    finding = critical[0]
    why = "the limit of treatments is reached" if is_limit else "no other remedy may be applied"
    verdict = (
        f"Stop the run: {finding.code} {finding.name} is still critical. "
        f"Undone without help: {', '.join(undone)}; {why}."
    )
    step, sentence = _best(chart)
    body = {"finding": finding.code, "verdict": verdict + sentence, "best_step": step}
    return Event("treatment-stopped", chart.step, body)


def _best(chart: Chart) -> tuple[int | None, str]:
    """The step with the best outcome, and a sentence about it."""
    for metric in _OUTCOMES:
        series = chart.series(metric)
        readings = [(value, step) for step, value in series if math.isfinite(value)]
        if not readings:
            continue
        best, step = max(readings)
        # A block far back counts by its median, which a single lucky reading cannot raise.
        if series.highest is not None and series.highest.level > best:
            best, step = series.highest.level, series.highest.step
        return step, f" The best step was {step} ({metric} {best:.3g}): keep a checkpoint near it."
    return None, " No outcome is logged, so the best step is unknown."
