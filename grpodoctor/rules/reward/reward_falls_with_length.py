"""REW015."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite
from grpodoctor.rules.shared.health.run_health import current_metric
from grpodoctor.rules.shared.shapes.short_runs import USUAL, ShortFall, ShortRun, fall_in_short_run
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import OPENING, Series
from grpodoctor.vocabulary.conditions import Condition

_OUTCOMES = ("accuracy/train", "reward/mean")
_LENGTH = "length/mean"


class RewardFallsWithLength(Rule):
    """In a short run, the outcome falls while responses shrink.

    What it sees:
        The latest three readings of accuracy, or of reward where accuracy is not logged, against
        the best three in a row before them, in a run of fewer than 40 readings. At the same time
        the mean length of the latest three is at most half of its start. Neither alone is a
        finding. LEN002 reports a fall with responses that reach the length limit. Longer runs have
        levels of ten readings, which REW002 and LEN005 compare.

    Why it matters:
        A length penalty that outweighs the reward, or a loss that favors short responses, teaches
        length instead of the task. The reward rises at first, since the first
        change of length does no harm, and falls within ten to twenty steps. The best checkpoint is
        the one before the fall.

    Evidence it needs:
        `accuracy/train` or `reward/mean`, and `length/mean`.

    Remedies:
        Read ten short responses. Check for a penalty on length, in the reward or in the loss, and
        weaken it. Then return to a checkpoint before the fall.

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
    summary: ClassVar[str] = "The outcome of a short run falls as its responses shrink."
    inputs: ClassVar[tuple[Need, ...]] = (_OUTCOMES, _LENGTH)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "lower-learning-rate", "stop-training")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2501.12599", "arXiv 2503.20783")
    persistence: ClassVar[int] = 1
    """The rule itself compares three successive readings."""
    clearance: ClassVar[int] = OPENING

    min_readings: int = USUAL.min_readings
    """Minimum readings: three at first, three at last, and two between them."""
    max_readings: int = USUAL.max_readings
    """Readings from which levels of ten, twice as long a run, and their noise are known."""
    min_loss: float = USUAL.min_loss
    """Share of the best level that is lost. Runs that learn a format lose nothing."""
    min_errors: float = USUAL.min_errors
    """Standard errors by which the three readings must be below the best three. Of 1,000 simulated
    runs of 40 independent readings around one level, at most 20 reached it with such a loss at any
    step, with noise up to `max_noise`; their lengths would have had to halve as well."""
    max_noise: float = USUAL.max_noise
    """Noise of one reading, as a share of the best level, up to which three readings show a loss of
    a quarter."""
    length_share: float = 0.5
    """Share of the starting length. Healthy public runs that learn a format keep .45 to .7 of it,
    and their reward rises."""
    min_length: float = 32
    """Tokens of the shortest starting length that is judged; sums and labels are shorter."""

    def examine(self, chart: Chart) -> RuleResult:
        """Require a fall of the outcome, and a change of length in the same readings."""
        name = current_metric(chart, _OUTCOMES)
        change = self._shrinkage(chart)
        fall = self._fall(chart.series(name)) if change else None
        if change is None or fall is None:
            return None
        noun = "Accuracy" if name == "accuracy/train" else "Reward"
        text = f"{noun} fell from {fall.best:.3g} to {fall.level:.3g} while {change}."
        evidence = (cite(chart, name, fall.best),)
        return Sighting("warning", text, evidence, find_onset=lambda: fall.step)

    def _fall(self, series: Series) -> ShortFall | None:
        return fall_in_short_run(
            series,
            ShortRun(
                self.min_readings, self.max_readings, self.min_loss, self.min_errors, self.max_noise
            ),
        )

    def _shrinkage(self, chart: Chart) -> str | None:
        series = chart.series(_LENGTH)
        start = series.opening.level if series.opening is not None else 0.0
        latest = series.tail(OPENING)
        if not start >= self.min_length or not max(latest) <= self.length_share * start:
            return None
        return f"mean length fell from {start:.0f} to {latest[-1]:.0f} tokens"
