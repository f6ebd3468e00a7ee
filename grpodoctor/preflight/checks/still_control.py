"""MIS102."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.checks.mismatch import K3, NEEDS_PAIR
from grpodoctor.preflight.context import Patient
from grpodoctor.probe.results.results import Interval
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

_RATE = "optimizer/learning_rate"
_CHANGED = "optimizer/changed_weight_rate"
_SERIES = (
    "mismatch/kl_k3",
    "mismatch/logprob_diff_mean",
    "mismatch/prob_diff_mean",
    "mismatch/kl_k1",
    "mismatch/nll_gap",
    "kl/old_policy/k3",
    "kl/reference/k3",
)
_FEWEST = 4
_HOW = (
    "run a few steps with a learning rate of zero and give what they left with --control, or give "
    "--sampler and --learner"
)


class StillControl(Check):
    """The mismatch changes although nothing is learnt.

    What it sees:
        A few steps with a learning rate of zero (--control RUN, in any framework): mismatch and KL
        of each step, and whether any weight changed. Without such a run the two engines are
        compared in three rounds of fresh responses, which no update separates.

    Why it matters:
        With weights that stand still the mismatch is the engines' own and must be flat. If it
        grows, something else moves: caches that keep old weights, a sync that adds up, adapters
        that are merged twice, a sampler whose state drifts.

    What to do:
        Look at what happens between two steps besides the update: sync, sleep and wake, caches.

    When it is wrong:
        A few steps are few; a slope is told only if it is larger than the scatter explains.

    References:
        open-instruct issue 1473: the gap grows at a learning rate of zero.
    """

    code: ClassVar[str] = "MIS102"
    name: ClassVar[str] = "mismatch-without-learning"
    summary: ClassVar[str] = "The mismatch changes although nothing is learnt."
    rounds: ClassVar[int] = 3
    certain: ClassVar[float] = 0.001
    """Chance at which a slope this steep, or rounds as far apart, come by themselves, below which
    it is told: several series are looked at, by many people."""

    def examine(self, patient: Patient) -> Outcome:
        """Read the control run, or compare the engines in rounds."""
        if patient.control is not None:
            return self._of_run(patient.control)
        if patient.bench is None or patient.learner is None:
            return Skipped(NEEDS_PAIR.why, _HOW)
        rounds = [
            patient.bench.mismatch(patient.learner, round_=number) for number in range(self.rounds)
        ]
        intervals = [each.intervals[K3] for each in rounds if K3 in each.intervals]
        if len(intervals) < self.rounds:
            return Skipped("too few prompts to tell chance from a difference", "raise --limit")
        told = ", ".join(f"{each.value:.1e}" for each in intervals)
        if not _apart(intervals, self.certain):
            return (
                Remark("info", f"k3 is the same in {self.rounds} rounds within chance: {told}"),
            )
        summary = f"k3 differs between rounds that nothing separates, by more than chance: {told}"
        return (Remark("warning", summary, ("restart the engines between rounds and compare",)),)

    def _of_run(self, control: Path) -> Outcome:
        series: dict[str, list[float]] = {name: [] for name in (*_SERIES, _RATE, _CHANGED)}
        for record in open_run(control).steps:
            for name, values in series.items():
                reading = record.values.get(name)
                value = scalar(reading) if reading is not None else None
                if value is not None:
                    values.append(value)
        if any(rate > 0 for rate in series[_RATE]):
            return Skipped("the control run has learnt: its learning rate is above zero", _HOW)
        remarks = [
            Remark(
                "critical",
                f"{name} grows from {values[0]:.2e} to {values[-1]:.2e} in {len(values)} steps "
                "without learning",
                ("look at what happens between two steps besides the update: sync, sleep, caches",),
            )
            for name in _SERIES
            if _grows(values := series[name], self.certain)
        ]
        if any(rate > 0 for rate in series[_CHANGED]):
            told = "weights change although the learning rate is zero"
            remarks.append(Remark("critical", told, ("look for weight decay and for merges",)))
        if remarks:
            return remarks
        seen = [name for name in _SERIES if len(series[name]) >= _FEWEST]
        if not seen:
            return Skipped(f"the control run has no mismatch or KL of {_FEWEST} steps", _HOW)
        return (Remark("info", f"flat without learning: {', '.join(seen)}"),)


def _apart(intervals: Sequence[Interval], certain: float) -> bool:
    """Whether rounds differ by more than their intervals of 95 % explain (chi-squared)."""
    from scipy.stats import chi2

    values = np.array([each.value for each in intervals])
    errors = np.array([(each.high - each.low) / (2 * 1.96) for each in intervals])
    spread, scatter = float(((values - values.mean()) ** 2).sum()), float((errors**2).mean())
    if spread == 0 or scatter == 0:
        return spread > 0
    return bool(chi2.sf(spread / scatter, len(values) - 1) < certain)


def _grows(values: Sequence[float], certain: float) -> bool:
    """Whether a series rises by more than its scatter explains."""
    if len(values) < _FEWEST or not np.isfinite(values).all() or np.ptp(values) == 0:
        return False
    from scipy.stats import linregress

    fit = linregress(np.arange(len(values)), values)
    rise = fit.slope * (len(values) - 1)
    return bool(
        fit.slope > 0 and fit.pvalue < certain and rise > abs(float(np.median(values))) / 10
    )
