"""OPT003."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Sighting
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.values import Max, Mean, Min, Quantiles, Rate, Reading

_COUNTERS = ("optimizer/nonfinite", "mismatch/nonfinite")
_MOST_NAMED = 5


@dataclass(frozen=True)
class NanOrInf(Rule):
    """A measured quantity holds NaN or infinity.

    What it sees:
        Entries that are not finite in any metric: counted beside the mean of the others, which
        stays readable, so that a single token shows. It names the metrics and the first step.

    Why it matters:
        NaN in the loss, the gradient, the reward or a ratio reaches every weight with the next
        update and ends the run. There is often no sign of it in any curve before.

    Evidence it needs:
        Any reading at all; best `optimizer/nonfinite` and `mismatch/nonfinite`.

    Remedies:
        Stop, go back to the last checkpoint, and look at the first metric named: log-probabilities
        at padding, an overflow in a coarse number format, an empty mask.

    When it is wrong:
        Training in fp16 skips single updates whose gradient overflows, by design: a warning where
        the update was skipped. Logs that write NaN for "not measured" are read as not measured only
        where their dialect says so.

    References:
        verl issue 2505, an accumulation over no tokens.
    """

    code: ClassVar[str] = "OPT003"
    name: ClassVar[str] = "nan-or-inf"
    former_names: ClassVar[tuple[str, ...]] = ("non-finite-values",)
    summary: ClassVar[str] = "A measured quantity holds NaN or infinity."
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
    references: ClassVar[tuple[str, ...]] = ("github.com/volcengine/verl/issues/2505",)
    persistence: ClassVar[int] = 1

    deadly: tuple[str, ...] = ("optimizer/", "reward/mean", "advantage/", "ratio/", "kl/")
    """Metrics of what goes into the update; elsewhere a value that is not finite is a warning."""

    def examine(self, chart: Chart) -> RuleResult:
        """Scan the readings of the step."""
        found = [
            (name, count)
            for name, reading in chart.readings.items()
            if (count := _nonfinite(name, reading))
        ]
        if not found:
            return None
        found.sort(key=lambda pair: not pair[0].startswith(self.deadly))
        names = ", ".join(name for name, _ in found[:_MOST_NAMED])
        critical = found[0][0].startswith(self.deadly) and not self._was_skipped(chart)
        evidence = tuple(
            Evidence(name, chart.step, count, 0.0, _where(chart.readings[name]))
            for name, count in found[:_MOST_NAMED]
        )
        text = f"values that are not finite in {names}"
        return Sighting("critical" if critical else "warning", text, evidence)

    def _was_skipped(self, chart: Chart) -> bool:
        skipped, broken = chart.value("optimizer/skipped_rate"), chart.value("optimizer/nonfinite")
        return skipped is not None and broken is not None and skipped >= broken > 0


def _nonfinite(name: str, reading: Reading) -> int:
    """How many entries of a reading are not finite."""
    if isinstance(reading, Mean | Quantiles):
        return reading.nonfinite
    if isinstance(reading, Rate):
        return reading.hits if name.startswith(_COUNTERS) else 0
    # An extreme over nothing is the other infinity.
    if isinstance(reading, Max):
        return int(reading.value == math.inf)
    return int(isinstance(reading, Min) and reading.value == -math.inf)


def _where(reading: Reading) -> str | None:
    return reading.where if isinstance(reading, Max | Min) else None
