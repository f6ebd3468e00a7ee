"""REW015."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar, NamedTuple

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.run_health import current_metric
from grpodoctor.runs.chart import OPENING, Chart, Series
from grpodoctor.runs.estimators import step_noise
from grpodoctor.vocabulary.conditions import Condition

_OUTCOMES = ("accuracy/train", "reward/mean")
_LENGTH, _TRUNCATED = "length/mean", "length/truncated_rate"


class _Fall(NamedTuple):
    """A fall of the outcome from its best level of three readings."""

    best: float
    level: float
    step: int
    """The first step after the best level."""


class RewardFallsWithLength(Rule):
    """In a short run, the outcome falls while responses shrink or reach the length limit.

    What it sees:
        The latest three readings of accuracy, or of reward where accuracy is not logged, against
        the best three in a row before them, in a run of fewer than 40 readings. At the same time
        the mean length of the latest three is at most half of its start, or the truncated share is
        far above its lowest level. Neither alone is a finding. Longer runs have levels of ten
        readings, which REW002, LEN002 and LEN005 compare.

    Why it matters:
        A length penalty that outweighs the reward, a bonus for length, or a loss that favors short
        responses teaches length instead of the task. The reward rises at first, since the first
        change of length does no harm, and falls within ten to twenty steps. The best checkpoint is
        the one before the fall.

    Evidence it needs:
        `accuracy/train` or `reward/mean`, with `length/mean` or `length/truncated_rate`.

    Remedies:
        Read ten short responses. Check for a penalty or bonus on length, in the reward or in the
        loss, and weaken it. Then return to a checkpoint before the fall.

    When it is wrong:
        Prompts of another kind, such as a harder part of a curriculum with shorter answers, change
        length and reward together.

    References:
        Kimi k1.5, arXiv 2501.12599, section 2.3.3, on length penalties that come too early; Dr.
        GRPO, arXiv 2503.20783, on losses that depend on length.
    """

    code: ClassVar[str] = "REW015"
    name: ClassVar[str] = "reward-falls-with-length"
    condition: ClassVar[Condition] = "length-loss"
    summary: ClassVar[str] = "The outcome of a short run falls as its responses change length."
    inputs: ClassVar[tuple[Need, ...]] = (_OUTCOMES, (_LENGTH, _TRUNCATED))
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "lower-learning-rate", "stop-training")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2501.12599", "arXiv 2503.20783")
    persistence: ClassVar[int] = 1
    """The rule itself compares three successive readings."""
    clearance: ClassVar[int] = OPENING

    min_readings: int = 8
    """Minimum readings: three at first, three at last, and two between them."""
    max_readings: int = 40
    """Readings from which levels of ten, twice as long a run, and their noise are known."""
    min_loss: float = 0.25
    """Share of the best level that is lost. Runs that learn a format lose nothing."""
    min_errors: float = 4.0
    """Standard errors by which the three readings must be below the best three. Of 1,000 simulated
    runs of 40 independent readings around one level, at most 20 reached it with such a loss at any
    step, with noise up to `max_noise`; their lengths would have had to halve as well."""
    max_noise: float = 0.1
    """Noise of one reading, as a share of the best level, up to which three readings show a loss of
    a quarter."""
    length_share: float = 0.5
    """Share of the starting length. Healthy public runs that learn a format keep .45 to .7 of it,
    and their reward rises."""
    min_length: float = 32
    """Tokens of the shortest starting length that is judged; sums and labels are shorter."""
    truncated_rise: float = 0.15
    """Rise of the truncated share above its lowest level; see LEN002."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require a fall of the outcome, and a change of length in the same readings."""
        series = chart.series(current_metric(chart, _OUTCOMES))
        if not self.min_readings <= len(series) < self.max_readings:
            return None
        change = self._shrinkage(chart) or self._truncation(chart)
        fall = self._fall(series) if change else None
        if change is None or fall is None:
            return None
        name = current_metric(chart, _OUTCOMES)
        noun = "Accuracy" if name == "accuracy/train" else "Reward"
        text = f"{noun} fell from {fall.best:.3g} to {fall.level:.3g} while {change}."
        evidence = (cite(chart, name, fall.best),)
        return Sighting("warning", text, evidence, find_onset=lambda: fall.step)

    def _fall(self, series: Series) -> _Fall | None:
        """The fall of the latest three readings below the best three; None if it is small."""
        pairs = [(step, value) for step, value in series if math.isfinite(value)]
        values = [value for _, value in pairs]
        before = values[:-OPENING]
        starts = range(len(before) - OPENING + 1)
        if not starts or not min(values) >= 0:
            return None  # on a scale with negative values, a share of the best level means nothing
        best, place = max((statistics.fmean(before[i : i + OPENING]), i) for i in starts)
        level = statistics.fmean(values[-OPENING:])
        noise = step_noise(before)
        error = noise * math.sqrt(2 / OPENING)
        if not best - level > max(self.min_errors * error, self.min_loss * best):
            return None
        if noise > self.max_noise * best:
            return None
        if not max(values[-OPENING:]) < statistics.median(before):
            return None  # a single low reading
        return _Fall(best, level, pairs[place + OPENING][0])

    def _shrinkage(self, chart: Chart) -> str | None:
        series = chart.series(_LENGTH)
        start = series.opening.level if series.opening is not None else 0.0
        latest = series.tail(OPENING)
        if not start >= self.min_length or not max(latest) <= self.length_share * start:
            return None
        return f"mean length fell from {start:.0f} to {latest[-1]:.0f} tokens"

    def _truncation(self, chart: Chart) -> str | None:
        series = chart.series(_TRUNCATED)
        if len(series) < self.min_readings:
            return None
        values = series.tail(self.max_readings)
        before = values[:-OPENING]
        starts = range(len(before) - OPENING + 1)
        lowest = min(statistics.fmean(before[i : i + OPENING]) for i in starts)
        if not min(values[-OPENING:]) - lowest > self.truncated_rise:
            return None
        return f"truncated responses rose from {lowest:.0%} to {values[-1]:.0%}"
