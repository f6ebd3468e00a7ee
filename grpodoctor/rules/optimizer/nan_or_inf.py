"""OPT003."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import ClassVar

from grpodoctor.rules.base import (
    Evidence,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite_all,
)
from grpodoctor.rules.shared.health.reward_components import MEAN, PREFIX, component_name
from grpodoctor.runs.chart import MOST_LAYOUTS, Chart
from grpodoctor.runs.series import WINDOW
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.metrics import may_be_empty
from grpodoctor.vocabulary.values import Max, Mean, Min, Quantiles, Rate, Reading

_REWARD = "reward/mean"
_GRADIENT, _LOSS = "optimizer/grad_norm", "optimizer/loss"
_COUNTERS = ("optimizer/nonfinite", "mismatch/nonfinite")
_NONFINITE = attrgetter("nonfinite")
_OF_REWARD = ("stop-training", "recheck-reward", "check-loss-mask")
_OF_EVALUATIONS = (*HELDOUT, "pass_at_k/", "time/")
_MOST_NAMED = 5
_WITH_COUNT = (Mean, Quantiles)
"""Readings that count their NaN and infinite entries. A tuple: a union is made at each use."""


class NanOrInf(Rule):
    """A metric contains NaN or infinity.

    What it sees:
        NaN or infinite entries in any metric. They are counted separately from the mean of the
        other entries, so even a single token shows. The evidence names the metrics and the first
        step. NaN in a metric that some batches have nothing to average for is no finding: held-out
        metrics between evaluations, the length of correct responses, a reward component of another
        task. A component that is NaN in every reading is `info`. So are a loss and a gradient norm
        that are missing at many steps, in a run that logged them at first: a logger may drop NaN.

    Why it matters:
        NaN in the loss, the gradient, the reward or a ratio reaches every weight with the next
        update and ends the run. Often no curve shows a warning sign first.

    Evidence it needs:
        Any metric. The most useful are `optimizer/nonfinite` and `mismatch/nonfinite`.

    Remedies:
        Stop, return to the last checkpoint, and check the first metric named: log-probabilities at
        padding, an overflow in a low-precision number format, an empty mask, a reward function that
        returns NaN.

    When it is wrong:
        Training in fp16 skips single updates whose gradient overflows, by design; a skipped update
        is a warning. A log may write NaN where a metric of every batch was not recorded.

    References:
        verl issue 2505, an accumulation over no tokens.
    """

    code: ClassVar[str] = "OPT003"
    name: ClassVar[str] = "nan-or-inf"
    condition: ClassVar[Condition] = "non-finite"
    former_names: ClassVar[tuple[str, ...]] = ("non-finite-values",)
    summary: ClassVar[str] = "A metric contains NaN or infinity."
    inputs: ClassVar[tuple[Need, ...]] = (
        (
            "optimizer/loss",
            "optimizer/grad_norm",
            "optimizer/nonfinite",
            "reward/mean",
            "entropy/mean",
            "length/mean",
        ),
    )
    remedies: ClassVar[tuple[str, ...]] = ("stop-training", "check-loss-mask", "recheck-reward")
    references: ClassVar[tuple[str, ...]] = ("github.com/verl-project/verl/issues/2505",)
    persistence: ClassVar[int] = 1
    handles_nonfinite: ClassVar[bool] = True

    critical_metrics: tuple[str, ...] = ("optimizer/", "reward/mean", "advantage/", "ratio/", "kl/")
    """Metrics of what goes into the update; in other metrics NaN or infinity is a warning."""
    min_component_readings: int = 20
    """Readings without a number before a component counts as never measured: the batches of a task
    that a quarter of them contain are missed with a probability of .003."""
    min_missing: int = 10
    """Steps without loss and gradient norm, in a run that logged both at each of its first ten."""
    min_empty_rows: int = 20
    """Rows without any number after which they count as broken instead of as not logged."""

    def examine(self, chart: Chart) -> RuleResult:
        """Scan the readings of the step."""
        if _is_clean(chart):
            return self._missing(chart)
        counts = [
            (name, count)
            for name, reading in chart.readings.items()
            if (count := _nonfinite_count(name, reading))
        ]
        if not counts or self._is_without_readings(chart):
            return None
        is_total_broken = any(name == _REWARD for name, _ in counts)
        broken = [
            (name, count)
            for name, count in counts
            if is_total_broken or not _is_unmeasured(name, chart.readings[name])
        ]
        if not broken:
            return self._never_measured(chart, [name for name, _ in counts])
        broken.sort(key=lambda pair: self._rank(pair[0]))
        worst = broken[0][0]
        is_critical = worst.startswith(self.critical_metrics) and not self._was_skipped(chart)
        evidence = tuple(_evidence(chart, name, count) for name, count in broken[:_MOST_NAMED])
        text = _summary(chart, *broken[0], others=[name for name, _ in broken[1:]])
        onset = partial(_first_broken, chart, worst)
        severity: Severity = "critical" if is_critical else "warning"
        remedies = _OF_REWARD if is_total_broken else None
        return Sighting(severity, text, evidence, remedies, onset)

    def _missing(self, chart: Chart) -> Sighting | None:
        """Loss and gradient norm that are missing at many steps, since a step in the run.

        Some loggers drop what is not finite, and some trainers skip the update. A batch without a
        group that varies is skipped on purpose.
        """
        gradient, reward = chart.series(_GRADIENT), chart.series(_REWARD)
        if gradient.readings > reward.readings - self.min_missing or not len(gradient):
            return None  # the usual case
        logged, losses = set(gradient.steps(WINDOW)), set(chart.series(_LOSS).steps(WINDOW))
        steps = [step for step in reward.steps(WINDOW) if step >= gradient.first_step]
        early, late = steps[: self.min_missing], steps[-2 * self.min_missing :]
        missing = [step for step in late if step not in logged and step not in losses]
        if len(missing) < self.min_missing / 2 or not logged.issuperset(early):
            return None
        equal = dict(chart.series("groups/zero_variance_rate"))
        if sum(equal.get(step, 0.0) < 1 for step in missing) < self.min_missing / 2:
            return None
        first = next(step for step in steps if step not in logged)
        text = (
            f"Loss and gradient norm are missing in {len(missing)} of the latest {len(late)} "
            "steps: NaN, or skipped updates."
        )
        evidence = cite_all(chart, _GRADIENT, _LOSS, _REWARD)
        return Sighting("info", text, evidence, find_onset=lambda: first)

    def _is_without_readings(self, chart: Chart) -> bool:
        """Whether the row holds a held-out result alone, or nothing at all.

        A table with a row for each step and each evaluation has NaN where nothing was measured. A
        row of nothing means a broken run only if many follow, and none preceded a row with numbers
        or many numbers preceded them all: a script that logs the loss alone prints some numbers
        between the NaN of batches that overflow.
        """
        if chart.fresh:
            return all(name.startswith(_OF_EVALUATIONS) for name in chart.fresh)
        return not any(
            len(steps) >= self.min_empty_rows
            and (
                steps[0] > chart.series(name).last_step
                or _numbers_before(chart, name, steps[0]) >= self.min_empty_rows
            )
            for name, steps in chart.nonfinite.items()
        )

    def _never_measured(self, chart: Chart, names: list[str]) -> Sighting | None:
        """A component of the reward that has been NaN in every reading."""
        never = [
            name
            for name in names
            if name.startswith(PREFIX)
            and name.endswith(MEAN)
            and not len(chart.series(name))
            and len(chart.nonfinite.get(name, ())) >= self.min_component_readings
        ]
        if not never:
            return None
        evidence = tuple(
            Evidence(name, chart.step, len(chart.nonfinite[name]), 0.0)
            for name in never[:_MOST_NAMED]
        )
        text = (
            f"Component {component_name(never[0])} is NaN in all {len(chart.nonfinite[never[0]])} "
            "readings: its function scores no response."
        )
        return Sighting("info", text, evidence, ("recheck-reward",))

    def _rank(self, name: str) -> int:
        """Place in the summary: what reaches the weights first, then its causes, then the rest."""
        order = ("optimizer/", *self.critical_metrics)
        return next((place for place, start in enumerate(order) if name.startswith(start)), 99)

    def _was_skipped(self, chart: Chart) -> bool:
        skipped, broken = chart.value("optimizer/skipped_rate"), chart.value("optimizer/nonfinite")
        return skipped is not None and broken is not None and skipped >= broken > 0


def _is_clean(chart: Chart) -> bool:
    """Whether no reading has an entry that is NaN or infinite."""
    readings = chart.readings
    if any(map(_NONFINITE, readings.values())):
        return False
    counters = _counters_among(chart.fresh)
    return not any(map(_nonfinite_count, counters, map(readings.__getitem__, counters)))


@lru_cache(maxsize=MOST_LAYOUTS)
def _counters_among(names: frozenset[str]) -> tuple[str, ...]:
    """The metrics that count entries that are not finite; the same in most steps."""
    return tuple(name for name in names if name.startswith(_COUNTERS))


def _nonfinite_count(name: str, reading: Reading) -> int:
    """Number of entries of a reading that are NaN or infinite."""
    if isinstance(reading, Rate):
        return reading.hits if name.startswith(_COUNTERS) else 0
    return reading.nonfinite


def _is_unmeasured(name: str, reading: Reading) -> bool:
    """Whether a reading without any finite entry means that there was nothing to average."""
    return isinstance(reading, _WITH_COUNT) and not reading.count and may_be_empty(name)


def _numbers_before(chart: Chart, name: str, step: int) -> int:
    """How many readings of a metric, in its window, are older than a step."""
    return sum(each < step for each in chart.series(name).steps(WINDOW))


def _first_broken(chart: Chart, name: str) -> int:
    """The first step since which a metric has had no finite entry; this step if it has some."""
    last = chart.series(name).last_step
    return next((step for step in chart.nonfinite.get(name, ()) if step > last), chart.step)


def _evidence(chart: Chart, name: str, count: int) -> Evidence:
    """NaN where the whole reading is, with the last level before; else the number of entries."""
    reading = chart.readings[name]
    if isinstance(reading, _WITH_COUNT) and not reading.count and not name.startswith(_COUNTERS):
        series = chart.series(name)
        return Evidence(name, chart.step, math.nan, series.last if len(series) else None)
    return Evidence(name, chart.step, count, 0.0, _where(reading))


def _summary(chart: Chart, name: str, count: int, others: Sequence[str]) -> str:
    """What is broken: the number of readings, or of entries if a reading has others as well."""
    words = others[0] if len(others) == 1 else f"{len(others)} other metrics"
    more = f" and {words}" if others else ""
    reading, steps = chart.readings[name], chart.nonfinite.get(name, ())
    if not isinstance(reading, _WITH_COUNT) or reading.count or not steps:
        return f"{name} has {count} NaN or infinite value{'s' if count > 1 else ''}{more}."
    finite, latest = chart.series(name).readings, ""
    if len(steps) == WINDOW:  # earlier ones may be forgotten
        finite = sum(step >= steps[0] for step in chart.series(name).steps(WINDOW))
        latest = "the latest "
    total = len(steps) + finite
    also = f", and so {'is' if len(others) == 1 else 'are'} {words}" if others else ""
    return f"{name} is NaN or infinite in {len(steps)} of {latest}{total} readings{also}."


def _where(reading: Reading) -> str | None:
    return reading.where if isinstance(reading, Max | Min) else None
