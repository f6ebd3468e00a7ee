"""LEN001."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_GAP = "length/group_gap"
_INCORRECT = "length/incorrect"
_CORRECT = "length/correct"
_ALL = "length/mean"


class IncorrectResponsesGrowLonger(Rule):
    """Incorrect responses grow longer than correct ones to the same prompts.

    What it sees:
        The difference in length between incorrect and correct responses of the same group, as a
        share of the mean length: large, beyond its noise, and grown since the start of the run.
        Where groups are not logged, the ratio of the two overall means; the finding is then only
        `info`, since harder prompts get longer responses.

    Why it matters:
        If each response's loss is divided by its own length, a long incorrect response is punished
        less per token than a short one. A policy that recognizes that a response is failing learns
        to make it longer. The reward does not move, so no other metric shows it until responses
        reach the limit.

    Evidence it needs:
        `length/group_gap` and `length/mean`; or `length/incorrect` and `length/correct`.

    Remedies:
        Divide the loss by a denominator that does not depend on the response's own length: the
        tokens of the batch, or a constant. Mask or punish truncated responses.

    When it is wrong:
        Reasoning that grows in all responses lengthens the incorrect ones most, so the rule takes
        the gap relative to the mean length. If short responses are the incorrect ones at first, the
        gap starts below zero and rises toward zero as the policy learns to reason. That is
        progress, so a rise counts only once the incorrect responses are the longer ones. Late in a
        good run, few groups contain both correct and incorrect responses, and the gap is noisy. A
        prompt mix that changes during the run also changes the gap.

    References:
        Dr. GRPO, arXiv 2503.20783; DAPO, arXiv 2503.14476, section 3.3.
    """

    code: ClassVar[str] = "LEN001"
    name: ClassVar[str] = "incorrect-responses-grow-longer"
    condition: ClassVar[Condition] = "length-growth"
    summary: ClassVar[str] = "Incorrect responses grow longer than correct ones."
    inputs: ClassVar[tuple[Need, ...]] = ((_GAP, _INCORRECT), (_ALL, _CORRECT))
    remedies: ClassVar[tuple[str, ...]] = (
        "token-level-loss",
        "dr-grpo",
        "overlong-mask",
        "soft-overlong",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783", "arXiv 2503.14476")
    persistence: ClassVar[int] = 5
    judges_levels: ClassVar[bool] = True

    min_growth: float = 0.25
    """Minimum gap, and minimum growth of it, as a share of the mean length. In a run built to show
    the effect it goes from 0 to 1.9; with a token-level loss it stays within .02. Healthy runs of
    the bundled trainer grew by up to .3, from -.3 to 0."""
    min_overall_growth: float = 0.5
    """The same for overall means, which also depend on difficulty: twice as much."""
    noise_factor: float = 3.0
    """Gap and growth in standard deviations of one reading; a level of ten readings scatters by .4
    of them."""
    min_readings: int = 20
    """Minimum readings: the starting value and the current level must not overlap."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the gap with its starting value, each as a share of the mean length."""
        if chart.is_fresh(_GAP) and chart.is_fresh(_ALL):
            return self._within_groups(chart)
        if chart.is_fresh(_INCORRECT) and chart.is_fresh(_CORRECT):
            return self._overall(chart)
        return None

    def _within_groups(self, chart: Chart) -> Sighting | None:
        gap, length = chart.series(_GAP), chart.series(_ALL)
        gap_start, length_start = gap.baseline, length.baseline
        if gap_start is None or length_start is None or not length_start.level:
            return None
        if len(gap) < self.min_readings:
            return None
        gap_now, length_now = gap.level(RECENT), length.level(RECENT)
        if not length_now > 0:
            return None
        share = gap_now / length_now
        # The lesser of the two: a gap that closes from below is no fault, however much it grew.
        growth = min(share, share - gap_start.level / length_start.level)
        if not growth >= self.min_growth or growth * length_now < self._noise_of(gap):
            return None
        text = (
            f"Incorrect responses are {gap_now:.3g} tokens longer than correct ones to the same "
            f"prompts, up from {gap_start.level:+.2g}."
        )
        evidence = cite_all(chart, _GAP, _ALL, "length/truncated_rate")
        return Sighting("warning", text, evidence)

    def _overall(self, chart: Chart) -> Sighting | None:
        incorrect, correct = chart.series(_INCORRECT), chart.series(_CORRECT)
        incorrect_start, correct_start = incorrect.baseline, correct.baseline
        if incorrect_start is None or correct_start is None or not correct_start.level:
            return None
        correct_now = correct.level(RECENT)
        if len(incorrect) < self.min_readings or not correct_now > 0:
            return None
        ratio, ratio_start = (
            incorrect.level(RECENT) / correct_now,
            incorrect_start.level / correct_start.level,
        )
        growth = min(ratio - 1, ratio - ratio_start)
        if not growth >= self.min_overall_growth or growth * correct_now < self._noise_of(
            incorrect
        ):
            return None
        text = (
            f"Incorrect responses are {ratio:.1f} times as long as correct ones, up from "
            f"{ratio_start:.1f}; their prompts may be harder."
        )
        return Sighting("info", text, cite_all(chart, _INCORRECT, _CORRECT))

    def _noise_of(self, series: Series) -> float:
        return self.noise_factor * series.noise(self.min_readings)
