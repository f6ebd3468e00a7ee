"""OPT003."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Sighting
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Max, Mean, Min, Quantiles, Rate, Reading

_COUNTERS = ("optimizer/nonfinite", "mismatch/nonfinite")
_MOST_NAMED = 5
_WITH_COUNT = (Mean, Quantiles)
"""Readings that count their NaN and infinite entries. A tuple: a union is made at each use."""


class NanOrInf(Rule):
    """A metric contains NaN or infinity.

    What it sees:
        NaN or infinite entries in any metric. They are counted separately from the mean of the
        other entries, so even a single token shows. The evidence names the metrics and the first
        step.

    Why it matters:
        NaN in the loss, the gradient, the reward or a ratio reaches every weight with the next
        update and ends the run. Often no curve shows a warning sign first.

    Evidence it needs:
        Any metric. The most useful are `optimizer/nonfinite` and `mismatch/nonfinite`.

    Remedies:
        Stop, return to the last checkpoint, and check the first metric named: log-probabilities at
        padding, an overflow in a low-precision number format, an empty mask.

    When it is wrong:
        Training in fp16 skips single updates whose gradient overflows, by design; a skipped update
        is a warning. Logs that write NaN for "not measured" are read that way only where their
        framework is known to do so.

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
    remedies: ClassVar[tuple[str, ...]] = ("stop-training", "check-loss-mask")
    references: ClassVar[tuple[str, ...]] = ("github.com/verl-project/verl/issues/2505",)
    persistence: ClassVar[int] = 1

    critical_metrics: tuple[str, ...] = ("optimizer/", "reward/mean", "advantage/", "ratio/", "kl/")
    """Metrics of what goes into the update; in other metrics NaN or infinity is a warning."""

    def examine(self, chart: Chart) -> RuleResult:
        """Scan the readings of the step."""
        suspects = [
            (name, reading)
            for name, reading in chart.readings.items()
            # Nearly all readings are means or rates, and this rule looks at every one.
            if not (
                (type(reading) is Mean and not reading.nonfinite)
                or (type(reading) is Rate and not name.startswith(_COUNTERS))
                or (type(reading) is Max and reading.value != math.inf)
            )
        ]
        counts = [
            (name, count)
            for name, reading in suspects
            if (count := _nonfinite_count(name, reading))
        ]
        if not counts:
            return None
        counts.sort(key=lambda pair: self._rank(pair[0]))
        worst, worst_count = counts[0]
        is_critical = worst.startswith(self.critical_metrics) and not self._was_skipped(chart)
        evidence = tuple(
            Evidence(name, chart.step, count, 0.0, _where(chart.readings[name]))
            for name, count in counts[:_MOST_NAMED]
        )
        others = f" and {len(counts) - 1} more metrics" if len(counts) > 1 else ""
        text = f"{worst} has {worst_count} NaN or infinite values{others}."
        if worst_count == 1:
            text = f"{worst} has 1 NaN or infinite value{others}."
        return Sighting("critical" if is_critical else "warning", text, evidence)

    def _rank(self, name: str) -> int:
        """Place in the summary: what reaches the weights first, then its causes, then the rest."""
        order = ("optimizer/", *self.critical_metrics)
        return next((place for place, start in enumerate(order) if name.startswith(start)), 99)

    def _was_skipped(self, chart: Chart) -> bool:
        skipped, broken = chart.value("optimizer/skipped_rate"), chart.value("optimizer/nonfinite")
        return skipped is not None and broken is not None and skipped >= broken > 0


def _nonfinite_count(name: str, reading: Reading) -> int:
    """Number of entries of a reading that are NaN or infinite."""
    if isinstance(reading, _WITH_COUNT):
        return reading.nonfinite
    if isinstance(reading, Rate):
        return reading.hits if name.startswith(_COUNTERS) else 0
    # The extreme of an empty set is the other infinity.
    if isinstance(reading, Max):
        return int(reading.value == math.inf)
    return int(isinstance(reading, Min) and reading.value == -math.inf)


def _where(reading: Reading) -> str | None:
    return reading.where if isinstance(reading, Max | Min) else None
