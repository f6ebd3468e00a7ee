"""OPT007."""

from __future__ import annotations

import math
from functools import partial
from itertools import takewhile
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT, outcome_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_RATE, _GRADIENT = "optimizer/learning_rate", "optimizer/grad_norm"
_FINE = (_GRADIENT, "optimizer/loss", "entropy/mean", "reward/std", "kl/reference/k3")
"""Metrics with many digits, unless the log rounds."""
_MULTIPLE = 1e-3
"""Distance from a whole multiple of the last printed place that floating-point numbers have."""


class LearningRateFellToZero(Rule):
    """The learning rate was above zero, is zero or next to zero now, and the run goes on.

    What it sees:
        A learning rate of exactly zero in ten readings or more, after readings above zero. A
        warm-up begins at zero, and a schedule ends with a single zero; neither lasts. A rate below
        a thousandth of its peak counts as zero if it lasts for a fifth of the run: a cosine is that
        low over its last fiftieth only, and a cubic decay over its last tenth.

    Why it matters:
        The run samples, scores and computes gradients, but no weight changes. The gradient norm,
        the entropy and the reward look as before, and only the reward's rise ends. Usual causes are
        a schedule made for fewer steps than the run has, a resume that restores another schedule,
        a scheduler that is stepped once per update instead of once per batch, and a scheduler that
        lowers the rate when the loss stops falling: the loss of GRPO is always about zero.

    Evidence it needs:
        `optimizer/learning_rate`. Optional: `optimizer/grad_norm`.

    Remedies:
        Stop the run, or continue it with a constant rate or a schedule as long as the run.

    When it is wrong:
        The actor is frozen on purpose. A console that rounds a rate of 4e-5 to four decimals prints
        zero: where the last rate above zero may be the smallest that the log prints, the finding is
        `info`.

    References:
        Adam, arXiv 1412.6980.
    """

    code: ClassVar[str] = "OPT007"
    name: ClassVar[str] = "learning-rate-fell-to-zero"
    condition: ClassVar[Condition] = "undersized-updates"
    summary: ClassVar[str] = "The learning rate has fallen to zero, and the run goes on."
    inputs: ClassVar[tuple[Need, ...]] = (_RATE,)
    remedies: ClassVar[tuple[str, ...]] = ("check-schedule",)
    references: ClassVar[tuple[str, ...]] = ("arXiv 1412.6980",)

    readings: int = RECENT
    """Consecutive readings of zero. The last step of a linear or cosine schedule is one."""
    negligible: float = 1e-3
    """Share of the peak that counts as zero: a thousand steps at such a rate move weights as far as
    one step at the peak."""
    min_share: float = 0.2
    """Share of the run's readings with a negligible rate. The end of any decay by a power up to
    four is shorter."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require zeros after a rate above zero."""
        rates = chart.series(_RATE)
        if not len(rates) or not chart.is_fresh(_RATE):
            return None
        return self._zero(chart) if rates.last == 0 else self._negligible(chart)

    def _negligible(self, chart: Chart) -> Sighting | None:
        """A rate that has been far below its peak for a part of the run that no decay takes."""
        rates = chart.series(_RATE)
        peak = rates.highest.level if rates.highest is not None else 0.0
        bound = self.negligible * peak
        if not 0 < rates.last <= bound:
            return None  # the usual case
        levels = rates.whole_run()  # block means in a long run
        share = len(list(takewhile(lambda rate: rate <= bound, reversed(levels)))) / len(levels)
        if share * rates.readings < self.readings or share < self.min_share:
            return None
        onset = _first_step_below(rates, bound)
        text = (
            f"The learning rate is below a thousandth of its peak of {peak:.2g} since step "
            f"{onset}; weights hardly change."
        )
        evidence = (cite(chart, _RATE, peak), *cite_all(chart, _GRADIENT, outcome_metric(chart)))
        return Sighting("warning", text, evidence, find_onset=partial(int, onset))

    def _zero(self, chart: Chart) -> Sighting | None:
        rates = chart.series(_RATE)
        zeros = len(list(takewhile(lambda rate: rate == 0, reversed(rates.tail(len(rates))))))
        if zeros < self.readings or rates.highest is None:
            return None
        before = rates.tail(zeros + 1)[0] or rates.highest.level
        if not before > 0:
            return None
        onset = rates.steps(zeros)[0]
        gradient = chart.series(_GRADIENT)
        if chart.is_fresh(_GRADIENT) and not gradient.last > 0:
            return None  # OPT001 reports a gradient of zero
        text = f"The learning rate fell from {before:.2g} to 0 at step {onset}; no weight changes."
        severity: Severity = "info" if _may_be_rounded(chart, before) else "warning"
        evidence = (cite(chart, _RATE, before), *cite_all(chart, _GRADIENT, outcome_metric(chart)))
        return Sighting(severity, text, evidence, find_onset=partial(int, onset))


def _first_step_below(rates: Series, bound: float) -> int:
    """The first of the latest steps that have such a rate without interruption."""
    recent = rates.tail(len(rates))
    return rates.steps(len(list(takewhile(lambda rate: rate <= bound, reversed(recent)))))[0]


def _may_be_rounded(chart: Chart, rate: float) -> bool:
    """Whether a rate is the smallest that the log can print, as far as its other metrics show."""
    if not math.isclose(rate, 10 ** round(math.log10(rate)), rel_tol=1e-9):
        return False
    values = [value for name in _FINE for value in chart.series(name).tail(RECENT)]
    return all(abs(value / rate - round(value / rate)) < _MULTIPLE for value in values)
