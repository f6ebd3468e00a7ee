"""REW014."""

from __future__ import annotations

import math
import statistics
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.run_health import current_metric
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import step_noise
from grpodoctor.vocabulary.conditions import Condition

_OUTCOMES = ("accuracy/train", "reward/mean")
_LATEST = 2
"""Readings after the fall."""
_BEFORE = 40
"""Readings before it, at most."""


class SuddenRewardFall(Rule):
    """Two readings of the outcome in a row are far below all earlier ones.

    What it sees:
        Accuracy, or reward where accuracy is not logged, in the latest two readings. Their mean is
        below half of the usual level. Both are below every earlier reading by more than the noise
        of one reading, and more than six times this noise below the usual level. REW002 needs ten
        readings for a level, so it reports the same collapse about eight steps later.

    Why it matters:
        Runs that break down do so within few steps, and the steps after that only cost compute. The
        latest good checkpoint is a few steps old when this rule fires.

    Evidence it needs:
        `accuracy/train` or `reward/mean`, at least 10 readings before the fall. With fewer than 20,
        the fall must be larger, since their noise is less certain.

    Remedies:
        Return to a checkpoint before the fall. Lower the learning rate, or make fewer updates per
        batch, before the run continues.

    When it is wrong:
        A broken verifier, a timeout of the environment or a harder part of a curriculum lowers the
        reward at once and leaves the policy as it was. The finding ends when the reward returns.

    References:
        arXiv 2512.04220 on the collapse of GRPO runs with tools.
    """

    code: ClassVar[str] = "REW014"
    name: ClassVar[str] = "sudden-reward-fall"
    condition: ClassVar[Condition] = "reward-loss"
    summary: ClassVar[str] = "Two readings in a row are far below all earlier ones."
    inputs: ClassVar[tuple[Need, ...]] = (_OUTCOMES,)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates", "stop-training")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2512.04220",)
    persistence: ClassVar[int] = 1
    """The rule itself compares two successive readings."""

    min_before: int = 10
    """Readings before the fall."""
    many_before: int = 20
    """Readings before the fall that are enough to know the noise of one reading."""
    max_left: float = 0.5
    """Share of the usual level that the two readings keep on average at most: the first may lie in
    the middle of the fall."""
    min_noises: float = 6.0
    """Multiple of the noise of one reading. Under normality one reading reaches it in a billion;
    rewards of few responses have heavier tails, so two readings in a row must reach it."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the latest two readings with those before."""
        name = current_metric(chart, _OUTCOMES)
        series = chart.series(name)
        earlier = series.tail(_LATEST + 1)
        if math.isfinite(sum(earlier)) and max(earlier[-_LATEST:]) >= earlier[0]:
            return None  # the usual case, without reading the window
        values = series.tail(_BEFORE + _LATEST)
        if not math.isfinite(sum(values)):
            values = list(filter(math.isfinite, values))
        before, latest = values[:-_LATEST], values[-_LATEST:]
        if len(before) < self.min_before or not max(latest) < min(before):
            return None
        usual = statistics.median(before)
        # On a scale with negative values, the level is counted from the lowest reading.
        floor = min(0.0, *before)
        noise = max(step_noise(before), statistics.pstdev(before))
        is_far = usual - max(latest) > self._far(len(before)) * noise
        is_lowest = max(latest) < min(before) - noise
        is_lost = statistics.mean(latest) - floor <= self.max_left * (usual - floor)
        if not (is_far and is_lowest and is_lost):
            return None
        noun = "Accuracy" if name == "accuracy/train" else "Reward"
        text = f"{noun} fell from {usual:.3g} to {latest[0]:.3g} and {latest[1]:.3g}."
        onset = series.steps(_LATEST)[0]
        evidence = (cite(chart, name, usual),)
        return Sighting("warning", text, evidence, find_onset=lambda: onset)

    def _far(self, count: int) -> float:
        """Noises below the usual level that chance reaches equally rarely with fewer readings.

        The noise of `count` readings is an estimate, so their standard score follows Student's t.
        """
        if count >= self.many_before:
            return self.min_noises
        from scipy import special  # it would slow down the start, and is rarely needed

        chance = special.stdtr(self.many_before - 1, -self.min_noises)
        return -float(special.stdtrit(count - 1, chance))
