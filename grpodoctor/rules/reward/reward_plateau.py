"""REW001."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.run_health import has_improved, is_near_ceiling, is_solved, share_lost
from grpodoctor.runs.chart import Chart, Series
from grpodoctor.runs.estimators import level_shift

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_HELDOUT = ("accuracy/heldout", "reward/heldout")


@dataclass(frozen=True)
class RewardPlateau(Rule):
    """The outcome has not risen for a long while, and it is not at its ceiling.

    What it sees:
        A hundred readings whose second half is no higher than the first, without a rise on held-out
        prompts, short of the ceiling. A note where the run had learnt before; a warning where it
        never did and held-out prompts say the same.

    Why it matters:
        Compute is spent and nothing comes of it. The causes differ: a reward that rejects right
        answers, steps or groups that are too small, prompts of the wrong difficulty, entropy that
        is used up, weights in a format that rounds the updates away.

    Evidence it needs:
        `accuracy/train` or `reward/mean` for a hundred steps; held-out figures to be sure.

    Remedies:
        Check the reward function on known answers; look at the groups' findings and at ENT001.

    When it is wrong:
        Each batch holds other prompts, so that a flat training curve with a rising held-out one is
        normal; without held-out figures it stays a note. A run that stands still after a collapse
        has another disease, and is left to REW002. Logs that repeat a value over many rows
        look flatter than the run was.

    References:
        Cui et al. 2025, arXiv 2505.22617, for plateaus that entropy explains.
    """

    code: ClassVar[str] = "REW001"
    name: ClassVar[str] = "reward-plateau"
    summary: ClassVar[str] = "The outcome has not risen for a long while, short of its ceiling."
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "raise-temperature", "harder-prompts")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2505.22617",)
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 5
    cadence: ClassVar[int] = 10

    half: int = 50
    """Readings to each half. In small runs learning shows within twenty steps, at scale within a
    hundred."""
    rise: float = 2.0
    """Standard errors by which the second half must be higher to count as rising: nineteen in
    twenty that are no higher stay below."""
    rise_heldout: float = 1.0
    """The same for held-out figures, which are few: a healthy slow run reached 1.5 over 23 of them.
    Only where they do not rise at all do they confirm a plateau."""
    lost: float = 0.35
    """Share of the best outcome from whose loss on it is a collapse, and REW002's."""
    evaluations: int = 3
    """Fewest held-out evaluations to each half of those in the window."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the halves of a long window."""
        name = _ACCURACY if chart.is_fresh(_ACCURACY) else _REWARD
        series = chart.series(name)
        if len(series) < 2 * self.half:
            return None
        values = series.tail(2 * self.half)
        before, after = values[: self.half], values[self.half :]
        if sum(after) > 1.05 * sum(before) > 0 or not any(values):
            return None
        if is_solved(chart) or is_near_ceiling(series):
            return None
        if self._is_rising(series) or share_lost(series) >= self.lost:
            return None
        if name == _ACCURACY and self._is_rising(chart.series(_REWARD)):
            return None  # the policy learns something else, see REW005
        heldout = self._heldout_shift(chart, since=series.steps(2 * self.half)[0])
        if heldout is not None and heldout >= self.rise_heldout:
            return None
        return self._sighting(chart, name, confirmed=heldout is not None and heldout <= 0)

    def _is_rising(self, series: Series) -> bool:
        values = series.tail(2 * self.half)
        enough = len(values) == 2 * self.half
        return enough and level_shift(values[: self.half], values[self.half :]) >= self.rise

    def _heldout_shift(self, chart: Chart, *, since: int) -> float | None:
        for name in _HELDOUT:
            values = [value for step, value in chart.series(name) if step >= since]
            middle = len(values) // 2
            if middle >= self.evaluations:
                return level_shift(values[:middle], values[middle:])
        return None

    def _sighting(self, chart: Chart, name: str, *, confirmed: bool) -> Sighting:
        # The mean: rewards of few responses take few values, and their median is one of these.
        level = statistics.fmean(filter(math.isfinite, chart.series(name).tail(self.half)))
        start = chart.baseline(name)
        beside = ", and neither has the held-out figure" if confirmed else ""
        text = f"{name} ({level:.3g}) has not risen for {2 * self.half} readings{beside}"
        evidence = (cite(chart, name, start.level if start else None), *cite_all(chart, *_HELDOUT))
        if confirmed and has_improved(chart) is False:
            return Sighting("warning", f"{text}; within noise it is where it began", evidence)
        return Sighting("info", text, evidence)
