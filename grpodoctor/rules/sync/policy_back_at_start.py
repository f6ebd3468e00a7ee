"""SYN010."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar, NamedTuple

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.run_health import (
    ENTROPY_METRICS,
    current_metric,
    outcome_noun,
    reading_noise,
)
from grpodoctor.rules.shared.shapes.level_jumps import is_apart
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition

_OUTCOMES = ("accuracy/train", "reward/mean")
_KLS = ("kl/reference/k3", "kl/reference/k2")
_LENGTH = "length/mean"


class _Jump(NamedTuple):
    old: float
    new: float
    start: float


class PolicyBackAtStart(Rule):
    """Entropy and outcome return to their starting values in one step: training starts over.

    What it sees:
        A lasting step in the entropy, back to its starting value, and at the same step a fall of
        accuracy or reward to theirs. A KL to the reference or a mean length that is away from its
        starting value after the step, and no nearer to it than before, excludes the finding: the
        starting weights would return them as well.

    Why it matters:
        The weights are those of the start again: a resume that found no checkpoint, a sampler that
        reloaded the base model, an adapter that was initialized again. Everything learned before is
        lost, and the curve of the whole run still looks like progress.

    Evidence it needs:
        `entropy/mean` or `entropy/sampled`, and `accuracy/train` or `reward/mean`, which have moved
        since the start. Optional: `kl/reference/k3` or `kl/reference/k2`, and `length/mean`.

    Remedies:
        Compare the weights before and after the step, or score a fixed batch with both. Resume from
        the last checkpoint before the step.

    When it is wrong:
        A log to which a second run was appended under continued step numbers: then that is what
        the finding shows. New prompts that are as hard for the trained policy as the first ones
        were for the untrained one, where neither KL nor length tells them apart.

    References:
        verl documentation of `trainer.resume_mode`.
    """

    code: ClassVar[str] = "SYN010"
    name: ClassVar[str] = "policy-back-at-start"
    condition: ClassVar[Condition] = "other"
    explains: ClassVar[tuple[Condition, ...]] = (
        "reward-loss",
        "environment-change",
        "entropy-rise",
    )
    confirm: ClassVar[str] = "Score a fixed batch with the checkpoints before and after the step."
    summary: ClassVar[str] = "Entropy and outcome return to their starting values in one step."
    inputs: ClassVar[tuple[Need, ...]] = (ENTROPY_METRICS, _OUTCOMES)
    remedies: ClassVar[tuple[str, ...]] = ("check-resume",)
    references: ClassVar[tuple[str, ...]] = ("verl.readthedocs.io",)
    persistence: ClassVar[int] = 1
    """The rule itself compares several readings before and after the step."""
    clearance: ClassVar[int] = WINDOW

    side: int = 5
    """Readings on each side of the step, all of them beyond all on the other side. Chance orders
    ten readings like that in one of 126 cases, and must do so in both metrics."""
    before: int = 20
    """Readings before the step."""
    min_noises: float = 4.0
    """Change of the entropy in noises of one reading, for the medians and from one reading to the
    next: together a billionth under normality."""
    min_outcome_noises: float = 2.5
    """The same for the medians of the outcome, which differ by .8 noises by chance."""
    max_left: float = 0.3
    """Share of what the run had moved from its start that may remain."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for a step of both, five readings ago."""
        entropy = chart.series(current_metric(chart, ENTROPY_METRICS))
        name = current_metric(chart, _OUTCOMES)
        outcome = chart.series(name)
        moved = self._jump(entropy, self.min_noises)
        if moved is None or not self._is_abrupt(entropy):
            return None
        fell = self._jump(outcome, self.min_outcome_noises)
        if fell is None or not fell.new < fell.old:
            return None
        step = entropy.steps(self.side)[0]
        if outcome.steps(self.side)[0] != step:
            return None
        if any(self._is_elsewhere(chart, other) for other in (*_KLS, _LENGTH)):
            return None
        text = (
            f"At step {step} {outcome_noun(chart)} fell from {fell.old:.2g} to {fell.new:.2g}, "
            f"entropy went from {moved.old:.2g} to {moved.new:.2g}: the starting values."
        )
        evidence = (
            cite(chart, current_metric(chart, ENTROPY_METRICS), moved.start),
            cite(chart, name, fell.start),
        )
        return Sighting("warning", text, evidence, find_onset=lambda: step)

    def _jump(self, series: Series, noises: float) -> _Jump | None:
        """A step back to the start, between the latest readings and those before."""
        if series.start is None or not is_apart(series, self.side):
            return None  # the usual case
        values = series.tail(self.before + self.side)
        if len(values) < self.before + self.side:
            return None
        latest, nearby = values[-self.side :], values[-2 * self.side : -self.side]
        old, new, start = statistics.median(nearby), statistics.median(latest), series.start.level
        if not math.isfinite(old - new) or abs(new - old) <= noises * reading_noise(series):
            return None
        # Further than the start in the same direction is back at the start as well.
        left = (new - start) / (old - start) if old != start else math.inf
        return _Jump(old, new, start) if -1 < left <= self.max_left else None

    def _is_elsewhere(self, chart: Chart, name: str) -> bool:
        """Whether a metric is away from its starting value, and no nearer to it than before."""
        series = chart.series(name)
        values = series.tail(2 * self.side)
        if not chart.is_fresh(name) or series.start is None or len(values) < 2 * self.side:
            return False
        before, now = (
            statistics.median(part) - series.start.level
            for part in (values[: self.side], values[self.side :])
        )
        if not abs(now) > self.min_noises * reading_noise(series):
            return False
        return abs(now) > (1 - self.max_left) * abs(before)

    def _is_abrupt(self, series: Series) -> bool:
        """Whether the entropy changed from one reading to the next, and not along a slope."""
        first, last = series.tail(self.side + 1)[1], series.tail(self.side + 1)[0]
        return abs(first - last) > self.min_noises * reading_noise(series)
