"""MIS102."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.engines.mismatch import K3, REQUIRES_TWO_ENGINES
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.probe.results.results import Interval
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

_LEARNING_RATE = "optimizer/learning_rate"
_CHANGED_WEIGHTS = "optimizer/changed_weight_rate"
_METRICS = (
    "mismatch/kl_k3",
    "mismatch/logprob_diff_mean",
    "mismatch/prob_diff_mean",
    "mismatch/kl_k1",
    "mismatch/nll_gap",
    "kl/old_policy/k3",
    "kl/reference/k3",
)
_MIN_STEPS = 4
_REMEDY = (
    "run a few steps with a learning rate of zero and pass its log with --control, or add "
    "--sampler and --learner"
)


class ZeroLearningRate(Check):
    """The mismatch changes although the weights do not.

    What it sees:
        A few steps with a learning rate of zero (--control RUN, from any framework): mismatch and
        KL of each step, and whether weights changed. Without such a run, the two engines are
        compared in three rounds of fresh responses, with no update between them.

    Why it matters:
        With constant weights, the mismatch comes from the engines alone and must be constant. If it
        grows, something else changes: caches that keep old weights, a weight sync that accumulates
        errors, adapters that are merged twice, state in the sampler.

    What to do:
        Check what happens between two steps besides the update: weight sync, sleep and wake-up,
        caches.

    When it is wrong:
        A few steps are little evidence. A slope is reported only if it exceeds the scatter.

    References:
        open-instruct issue 1473: the gap grows at a learning rate of zero.
    """

    code: ClassVar[str] = "MIS102"
    name: ClassVar[str] = "mismatch-at-zero-learning-rate"
    former_names: ClassVar[tuple[str, ...]] = ("mismatch-without-learning",)
    summary: ClassVar[str] = "The mismatch changes although the weights do not."
    rounds: ClassVar[int] = 3
    """Rounds of fresh responses, without updates between them, that are compared."""
    max_p_value: ClassVar[float] = 0.001
    """p-value of a slope or of a difference between rounds, below which it is reported. It is small
    because many users test several metrics."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Read the control run, or compare the engines in rounds."""
        if context.control is not None:
            return self._examine_run(context.control)
        sampler, learner = context.sampler, context.learner
        if sampler is None or learner is None:
            return SkippedCheck(REQUIRES_TWO_ENGINES.reason, _REMEDY)
        comparisons = [sampler.mismatch(learner, round_index=index) for index in range(self.rounds)]
        intervals = [each.intervals[K3] for each in comparisons if K3 in each.intervals]
        if len(intervals) < self.rounds:
            return SkippedCheck(
                "too few prompts to separate a difference from chance", "raise --limit"
            )
        values = ", ".join(f"{interval.value:.1e}" for interval in intervals)
        if not _differ(intervals, self.max_p_value):
            summary = f"KL (k3) is constant over {self.rounds} rounds, within chance: {values}."
            return (CheckFinding("info", summary),)
        summary = f"KL (k3) differs between rounds without updates, beyond chance: {values}."
        return (
            CheckFinding("warning", summary, ("Restart the engines between rounds and compare.",)),
        )

    def _examine_run(self, control: Path) -> CheckResult:
        series = _read_series(control)
        if any(rate > 0 for rate in series[_LEARNING_RATE]):
            return SkippedCheck("the learning rate of the control run is above zero", _REMEDY)
        findings = tuple(self._run_findings(series))
        if findings:
            return findings
        constant = [name for name in _METRICS if len(series[name]) >= _MIN_STEPS]
        if not constant:
            return SkippedCheck(
                f"the control run has no mismatch or KL for {_MIN_STEPS} steps", _REMEDY
            )
        return (CheckFinding("info", f"Constant at learning rate zero: {', '.join(constant)}."),)

    def _run_findings(self, series: Mapping[str, Sequence[float]]) -> Iterator[CheckFinding]:
        for name in _METRICS:
            values = series[name]
            if _grows(values, self.max_p_value):
                yield CheckFinding(
                    "critical",
                    f"{name} grows from {values[0]:.2e} to {values[-1]:.2e} in {len(values)} "
                    "steps at learning rate zero.",
                    (
                        "Check what happens between steps besides the update: weight sync, sleep, "
                        "caches.",
                    ),
                )
        if any(rate > 0 for rate in series[_CHANGED_WEIGHTS]):
            yield CheckFinding(
                "critical",
                "Weights change although the learning rate is zero.",
                ("Check for weight decay and for merged adapters.",),
            )


def _read_series(control: Path) -> dict[str, list[float]]:
    """The values of all examined metrics, in the order of the steps."""
    series: dict[str, list[float]] = {
        name: [] for name in (*_METRICS, _LEARNING_RATE, _CHANGED_WEIGHTS)
    }
    for record in open_run(control).steps:
        for name, values in series.items():
            reading = record.values.get(name)
            value = scalar(reading) if reading is not None else None
            if value is not None:
                values.append(value)
    return series


def _differ(intervals: Sequence[Interval], certain: float) -> bool:
    """Whether rounds differ by more than their 95% intervals explain (chi-squared test)."""
    from scipy.stats import chi2

    values = np.array([interval.value for interval in intervals])
    errors = np.array([(interval.high - interval.low) / (2 * 1.96) for interval in intervals])
    squares = float(((values - values.mean()) ** 2).sum())
    variance = float((errors**2).mean())
    if squares == 0 or variance == 0:
        return squares > 0
    return bool(chi2.sf(squares / variance, len(values) - 1) < certain)


def _grows(values: Sequence[float], certain: float) -> bool:
    """Whether a series rises by more than its scatter explains."""
    if len(values) < _MIN_STEPS or not np.isfinite(values).all() or np.ptp(values) == 0:
        return False
    from scipy.stats import linregress

    fit = linregress(np.arange(len(values)), values)
    rise = fit.slope * (len(values) - 1)
    return bool(
        fit.slope > 0 and fit.pvalue < certain and rise > abs(float(np.median(values))) / 10
    )
