"""LEN006."""

from __future__ import annotations

import statistics
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.heldout import heldout_level_kept_since, heldout_rise_since
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    fall_text,
    first_step_where,
    level_at,
    outcome_lost,
    outcome_metric,
)
from grpodoctor.rules.shared.health.whole_run import rises_over_run
from grpodoctor.rules.shared.shapes.task_stages import jumped_with_stage
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT

_LENGTH, _TRUNCATED = "length/mean", "length/truncated_rate"
_LATEST = 5
_IF_NONE_ENDS = ("check-end-token", "soft-overlong", "lower-learning-rate", "kl-penalty")
"""Remedies where responses ended at first and nearly none does now."""


def _is_above(middle: float, value: float) -> bool:
    return value >= middle


class LengthExplosion(Rule):
    """Response length explodes while the reward collapses.

    What it sees:
        A mean length of at least one and a half times its earlier level, while a third or more of
        the best outcome is lost. At least half of the growth must come after the best outcome:
        responses that grew while the outcome rose did not cost it. Held-out evaluations that keep
        rising, or are as high after the growth as before, exclude the finding: then the prompts or
        the reward function changed.

    Why it matters:
        A policy that has lost the ability to end its responses writes until the limit. This is the
        visible part of a collapse: gibberish, loops, or invalid actions that are repeated until the
        episode ends. It also makes each further step more expensive.

    Evidence it needs:
        `length/mean`, and `reward/mean` or `accuracy/train`. Optional: `length/truncated_rate`.

    Remedies:
        If nearly all responses are truncated, and most ended at first, check that the end token is
        in the loss before anything else.
        Return to a checkpoint before the onset and lower the learning rate. A KL penalty keeps the
        policy near text that ends.

    When it is wrong:
        A switch to harder prompts lengthens responses and lowers the reward at once. Held-out
        evaluations or a column with the stage tell it apart, if they are logged.

    References:
        verl issue 2738 (entropy rises until responses are truncated); verl-agent issue 188 (length
        jumps as valid actions and score fall); DAPO, arXiv 2503.14476, section 3.4.
    """

    code: ClassVar[str] = "LEN006"
    name: ClassVar[str] = "length-explosion"
    condition: ClassVar[Condition] = "length-growth"
    summary: ClassVar[str] = "Response length explodes while the reward collapses."
    inputs: ClassVar[tuple[Need, ...]] = (_LENGTH, ("reward/mean", "accuracy/train"))
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "kl-penalty", "soft-overlong")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/verl-project/verl/issues/2738",
        "arXiv 2503.14476",
    )
    persistence: ClassVar[int] = 2
    clearance: ClassVar[int] = 2 * RECENT

    min_growth: float = 1.5
    """Multiple of the level before. Public collapses show 1.9 (where the limit is reached) to 6.
    Healthy runs grow as much, but do not lose their reward."""
    min_loss: float = 0.35
    """Share of the best outcome that must be lost; see REW002."""
    min_readings: int = 10
    """Readings before the latest ones that make the level before."""
    lost_ends: float = 0.9
    """Truncated share at which nearly no response ends by itself any more, in a run in which most
    did: the policy has lost its end token, or no longer finishes."""
    late_share: float = 0.5
    """Share of the growth that must come after the best outcome: the greater part."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the latest length with the lowest earlier level, then look at the outcome."""
        series = chart.series(_LENGTH)
        lowest = series.lowest
        if len(series) < self.min_readings + _LATEST or lowest is None:
            return None
        if series.last < self.min_growth * lowest.level:
            return None  # cheap, and true of nearly every step
        before = _usual(series)
        if before <= 0 or series.last < self.min_growth * before:
            return None
        level = series.level(_LATEST)
        if level < self.min_growth * before:
            return None
        if outcome_lost(chart) < self.min_loss or not self._cost_outcome(chart, before, level):
            return None
        onset = partial(first_step_where, series, partial(_is_above, (before + level) / 2))
        if heldout_level_kept_since(chart, onset()) is not None:
            return None
        rise, share = f"rose from {before:.0f} to {level:.0f} tokens", self._cut_share(chart)
        text, remedies = f"Mean length {rise} while {fall_text(chart)}.", self.remedies
        evidence = (cite(chart, _LENGTH, before), *cite_all(chart, outcome_metric(chart)))
        if share is not None:
            text = f"Length {rise} ({share:.0%} truncated) while {fall_text(chart)}."
            remedies, evidence = _IF_NONE_ENDS, (*evidence, cite(chart, _TRUNCATED))
        return Sighting("warning", text, evidence, remedies, find_onset=onset)

    def _cut_share(self, chart: Chart) -> float | None:
        """The truncated share, if nearly no response ends by itself any more."""
        series = chart.series(_TRUNCATED)
        start = series.start
        if not chart.is_fresh(_TRUNCATED) or start is None or start.level >= self.lost_ends / 2:
            return None
        share = series.level(_LATEST)
        return share if share >= self.lost_ends else None

    def _cost_outcome(self, chart: Chart, before: float, level: float) -> bool:
        """Whether the policy got worse, and the responses grew as the outcome fell."""
        length, best = chart.series(_LENGTH), chart.series(outcome_metric(chart) or "").highest
        if any(rises_over_run(chart.series(name)) for name in HELDOUT):
            return False
        if jumped_with_stage(chart, length, before) is not None:
            return False
        if best is None or best.step < length.steps(WINDOW)[0]:
            return True  # how long responses were at the best outcome is no longer known
        if heldout_rise_since(chart, best.step) is not None:
            return False
        then = level_at(length, best.step)
        return then is None or level - then >= self.late_share * (level - before)


def _usual(series: Series) -> float:
    """The usual length before: its starting value or the median of the window, the lower one."""
    levels = [statistics.median(series.tail(len(series))[:-_LATEST])]
    if series.baseline is not None:
        levels.append(series.baseline.level)
    return min(levels)
