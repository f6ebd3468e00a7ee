"""LEN001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.runs.chart import Chart, Series
from grpodoctor.runs.estimators import step_noise

_GAP = "length/group_gap"
_WRONG = "length/incorrect"
_RIGHT = "length/correct"
_ALL = "length/mean"


@dataclass(frozen=True)
class IncorrectResponsesGrowLonger(Rule):
    """Incorrect responses grow longer than correct ones to the same prompts.

    What it sees:
        The difference in length between incorrect and correct responses of the same group, as a
        share of the mean length: large, beyond its noise, and grown since the run's own start.
        Where groups are not recorded, the ratio of the two overall means: only a note, since harder
        prompts get longer answers.

    Why it matters:
        When each response's loss is divided by its own length, a long wrong answer is punished less
        per token than a short one. Where the policy can tell that it has failed, it learns to fail
        at length. The reward does not move, so nothing else shows it until responses hit the limit.

    Evidence it needs:
        `length/group_gap` and `length/mean`; or `length/incorrect` and `length/correct`.

    Remedies:
        Divide the loss by a denominator that does not depend on the response's own length: the
        tokens of the batch, or a constant. Mask or punish responses that are cut.

    When it is wrong:
        Reasoning that grows in all responses lengthens the wrong ones most; that is why the gap is
        taken relative to the mean length. Where short answers are the wrong ones, the gap begins
        below zero and rises to it as the policy learns to show its work: that is progress, and why
        a rise counts only once the wrong answers are the longer ones. Late in a good run few groups
        have both kinds, and the gap is noisy. A prompt mix that changes in flight moves it too.

    References:
        Dr. GRPO, arXiv 2503.20783; DAPO, arXiv 2503.14476, section 3.3.
    """

    code: ClassVar[str] = "LEN001"
    name: ClassVar[str] = "incorrect-responses-grow-longer"
    summary: ClassVar[str] = "Incorrect responses grow longer than correct ones."
    inputs: ClassVar[tuple[Need, ...]] = ((_GAP, _WRONG), (_ALL, _RIGHT))
    remedies: ClassVar[tuple[str, ...]] = (
        "token-level-loss",
        "dr-grpo",
        "overlong-mask",
        "soft-overlong",
    )
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.20783", "arXiv 2503.14476")
    persistence: ClassVar[int] = 5

    growth: float = 0.25
    """Least gap, and least growth of it, as a share of the mean length. In a run built to show the
    effect it goes from 0 to 1.9, with a token-level loss it stays within .02. Healthy runs of the
    bundled trainer were seen to grow by .3, from -.3 to 0."""
    growth_overall: float = 0.5
    """The same for overall means, which also move with difficulty: twice as much."""
    noise: float = 3.0
    """Gap and growth in standard deviations of one reading; a level of ten scatters by .4 of
    them."""
    readings: int = 20
    """Fewest readings: a start and a present that do not overlap."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the present gap with its start, each as a share of its mean length."""
        if chart.is_fresh(_GAP) and chart.is_fresh(_ALL):
            return self._within_groups(chart)
        if chart.is_fresh(_WRONG) and chart.is_fresh(_RIGHT):
            return self._overall(chart)
        return None

    def _within_groups(self, chart: Chart) -> Sighting | None:
        gap, length = chart.series(_GAP), chart.series(_ALL)
        start, usual = gap.baseline, length.baseline
        if start is None or usual is None or not usual.level or len(gap) < self.readings:
            return None
        now, present = gap.level(RECENT), length.level(RECENT)
        # The lesser of the two: a gap that closes from below is no disease, however much it grew.
        least = min(now / present, now / present - start.level / usual.level)
        if not least >= self.growth or least * present < self._noise_of(gap):
            return None
        text = (
            f"incorrect responses are {now:.3g} tokens longer than correct ones to the same "
            f"prompts (mean length {present:.3g}); the gap was {start.level:+.2g} at the start"
        )
        evidence = cite_all(chart, _GAP, _ALL, "length/truncated_rate")
        return Sighting("warning", text, evidence)

    def _overall(self, chart: Chart) -> Sighting | None:
        wrong, right = chart.series(_WRONG), chart.series(_RIGHT)
        begun, usual = wrong.baseline, right.baseline
        if begun is None or usual is None or not usual.level or len(wrong) < self.readings:
            return None
        now, present = wrong.level(RECENT), right.level(RECENT)
        if not present > 0:
            return None
        least = min(now / present - 1, now / present - begun.level / usual.level)
        if not least >= self.growth_overall or least * present < self._noise_of(wrong):
            return None
        text = (
            f"incorrect responses are {now / present:.1f} times as long as correct ones, "
            f"{begun.level / usual.level:.1f} times at the start; their prompts may be harder"
        )
        return Sighting("info", text, cite_all(chart, _WRONG, _RIGHT))

    def _noise_of(self, series: Series) -> float:
        return self.noise * step_noise(series.tail(self.readings))
