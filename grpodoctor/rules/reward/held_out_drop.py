"""REW003."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import accumulate, combinations, pairwise
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.health.heldout import heldout_metrics
from grpodoctor.rules.shared.health.run_health import (
    COLLAPSE_LOSS,
    RECENT,
    current_metric,
    first_step_where,
    level_at,
    outcome_lost,
    share_lost,
)
from grpodoctor.rules.shared.outcome.kept_policy import stands_still
from grpodoctor.rules.shared.shapes.trend import change, start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import implied_count, least_count, median, step_noise
from grpodoctor.runs.series import WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.values import Rate, Reading

_HELDOUT = ("accuracy/heldout", "reward/heldout")
_TRAIN = ("reward/mean", "accuracy/train")
_RARE_ORDER = math.factorial(6)
"""One in so many runs without a trend shows an order as rare as six falling values."""
_RARE_SCORE = statistics.NormalDist().inv_cdf(1 / _RARE_ORDER)
_FEW_ORDERS = 10
"""Values whose orders are counted: the time grows with the fourth power of their number."""


class HeldOutDrop(Rule):
    """Held-out evaluation drops while the training reward holds or rises.

    What it sees:
        The latest held-out evaluations are below the best ones by more than their sampling error,
        while the training reward is no lower than it was at the best ones. If half of the level is
        lost, the training reward may fall less than REW002 reports: a reward that pays mostly for
        other things falls a little with the task. With several held-out sets, each of them and
        their mean are judged; the finding names the one that lost most.

        Four or more evaluations that never rose, and that lost a tenth, count as well, if the
        number of held-out responses is known; three, if they lost four standard errors. The rule
        derives the number from the logged shares: 0.5663 and 0.5090 can only be 376 and 338 of 664
        responses. Where it is unknown, six evaluations that all fell count while the training
        reward rises, or more in an order that chance gives as rarely, or three that lost half while
        it clearly rises. A first evaluation that is above all later ones counts as well, where the
        number of responses is logged. So does a fall after which four evaluations or more stay
        below all earlier ones, far beyond their scatter, while the training reward rises; below
        eight evaluations the finding is then `info`. Six evaluations or more after the best one,
        each lower than the one before, count while the training reward falls less than REW002
        reports: a penalty for length that shortens the responses lowers both a little.

    Why it matters:
        The policy gets better at the reward and worse at the task: it exploits the reward function,
        or memorizes the training prompts. The training curve looks exactly like success.

    Evidence it needs:
        `accuracy/heldout` or `reward/heldout`, if possible from a judge that the training reward
        does not use, and `reward/mean` or `accuracy/train`.

    Remedies:
        Read the responses with the highest reward; score an empty and an adversarial response by
        hand. Then add a KL penalty, or stop at the best evaluation.

    When it is wrong:
        Held-out prompts of another kind drop when the policy specializes, which may be intended.
        Evaluation at another temperature than training measures a different policy. With 64
        held-out prompts a fall from .72 to .56 is still within the error; REW005 uses the training
        responses and sees it sooner.

    References:
        Gao et al. 2022, Scaling Laws for Reward Model Overoptimization, arXiv 2210.10760.
    """

    code: ClassVar[str] = "REW003"
    name: ClassVar[str] = "held-out-drop"
    condition: ClassVar[Condition] = "held-out-loss"
    former_names: ClassVar[tuple[str, ...]] = ("held-out-falls-while-training-rises",)
    summary: ClassVar[str] = "Held-out evaluation drops while the training reward does not."
    inputs: ClassVar[tuple[Need, ...]] = (_HELDOUT, _TRAIN)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "kl-penalty", "stop-training")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2210.10760",)
    persistence: ClassVar[int] = 1
    """The rule itself compares two successive levels, since evaluations are rare."""
    clearance: ClassVar[int] = 3

    min_standard_errors: float = 4.0
    """Standard errors of one evaluation by which the level must fall. The best of many levels of
    three is one to two of them too high by chance. The first evaluation needs as many: an unchanged
    policy was once 3.3 below it in 64 responses."""
    min_loss: float = 0.1
    """Minimum share of the best level that must be lost, however exact the evaluation."""
    critical_loss: float = 0.5
    """Share of the best level whose loss is critical: the purpose of the run is lost. A hacked
    verifier took true accuracy from .57 to .17 while its reward rose to .7."""
    evaluations_per_level: int = 3
    """Evaluations that make a level."""
    min_falling: int = 4
    """Evaluations, none of them above the one before, that make a steady fall: four are in this
    order by chance in one of 24 runs."""
    fewest_falling: int = 3
    """Evaluations that fall by `min_standard_errors`, which chance explains in no order."""
    min_falling_uncounted: int = 6
    """The same where the number of responses is unknown: chance puts six in falling order in one of
    720 runs."""
    fewest_responses: int = 30
    """Held-out responses that are assumed where their number is unknown: the smallest sets in use
    (AIME) have thirty prompts. Fewer than six evaluations then must lose half, in each of them and
    beyond the error of so few: three do so by chance in one of some hundred runs that do not learn.
    The training reward must have risen by `min_standard_errors` as well."""
    most_implied: int = 100
    """Responses that shares of at most three digits imply at most: .258 and .124 are no shares of
    thirty. An average over three sets of thirty prompts is as exact as a hundred responses."""
    min_falling_errors: float = 2.0
    """Standard errors by which such evaluations must have fallen in all. The binomial error is an
    upper bound: the same prompts are evaluated each time. Where reward, entropy and length are
    level, so that nothing shows another policy, it is `min_standard_errors` instead: two policies
    that stood still once fell by 2.3 in 64 responses, in each of four evaluations."""

    min_lasting_errors: float = 7.2
    """Standard errors, from the scatter before and after it, of a fall after which four evaluations
    or more stay low. Six evaluations reach it by chance once in a thousand (Student's t)."""
    sure_evaluations: int = 8
    """Evaluations from which such a fall is a warning; see REW008."""

    def examine(self, chart: Chart) -> RuleResult:
        """Judge each held-out set and their mean; report the one that lost most."""
        sightings = [
            self._sighting(chart, name)
            or self._steady_fall(chart, name)
            or self._below_first(chart, name)
            or self._lasting_fall(chart, name)
            or self._fall_from_best(chart, name)
            for name in heldout_metrics(chart)
        ]
        found = [sighting for sighting in sightings if sighting is not None]
        return max(found, key=lambda each: each[0])[1] if found else None

    def _sighting(self, chart: Chart, name: str) -> tuple[float, Sighting] | None:
        """The share that was lost and the sighting, if the held-out level fell from its best."""
        series = chart.series(name)
        if len(series) <= 2 * self.evaluations_per_level:
            return None
        before = series.tail(self.evaluations_per_level + 1)[:-1]
        now = max(series.level(self.evaluations_per_level), statistics.median(before))
        highest = series.window_max()
        if not highest - now > self.min_loss * abs(highest):
            return None  # the usual case: no level exceeds the highest reading
        # A level is a median, so at least half of its readings reach it.
        bound = sorted(series.tail(WINDOW))[-(self.evaluations_per_level // 2 + 1)]
        if not bound - now > self.min_loss * abs(bound):
            return None  # saves the levels of the whole window
        best, step = self._best(series)
        error = _error(chart.reading(name), best, series)
        if not best - now > max(self.min_standard_errors * error, self.min_loss * abs(best)):
            return None
        train = current_metric(chart, _TRAIN)
        then = level_at(chart.series(train), step)
        train_now = chart.series(train).level(RECENT)
        if then is None or not self._is_kept(chart, train, then, (best - now) / (abs(best) or 1)):
            return None
        text = (
            f"{name} fell from {best:.3g} (step {step}) to {now:.3g} "
            f"while {train} went from {then:.3g} to {train_now:.3g}."
        )
        is_critical = best > 0 and best - now >= self.critical_loss * best
        severity: Severity = "critical" if is_critical else "warning"
        middle = (best + now) / 2
        sighting = Sighting(
            severity,
            text,
            (cite(chart, name, best), cite(chart, train, then)),
            find_onset=partial(first_step_where, series, lambda value: value < middle, after=step),
        )
        return (best - now) / (abs(best) or 1.0), sighting

    def _is_kept(self, chart: Chart, train: str, then: float, lost: float) -> bool:
        """Whether the training reward holds, so that its curve hides a held-out loss.

        A reward that pays for other things than the task falls a little with the task. If half of
        the held-out level is lost, only a fall that REW002 reports is a better explanation.
        """
        series = chart.series(train)
        if series.level(RECENT) >= then:
            return True
        if lost < self.critical_loss:
            return False
        return max(share_lost(series), outcome_lost(chart)) < COLLAPSE_LOSS

    def _steady_fall(self, chart: Chart, name: str) -> tuple[float, Sighting] | None:
        """Few evaluations that only fall."""
        series, train = chart.series(name), current_metric(chart, _TRAIN)
        values, opening = series.tail(WINDOW), chart.series(train).opening
        if not self.fewest_falling <= len(values) < WINDOW or opening is None:
            return None
        loss = values[0] - values[-1]
        if not loss >= self.min_loss * values[0] > 0 or not _never_rises(series):
            return None
        count = implied_count(values)
        rise, noise = change(chart.series(train))
        floor = -noise if count is not None else noise
        if count is None and len(values) < self.min_falling_uncounted:
            floor = self.min_standard_errors * noise
        least = count or self._fewest_responses(values)
        if not rise > floor or not self._exceeds_chance(
            chart, series, loss, least, is_counted=count is not None
        ):
            return None
        text = (
            f"{name} fell steadily over {len(values)} evaluations, from {values[0]:.3g} to "
            f"{values[-1]:.3g}, while {train} did not."
        )
        evidence = (cite(chart, name, values[0]), cite(chart, train, opening.level))
        onset = partial(_first_below, series, values[0])
        return loss / values[0], Sighting("warning", text, evidence, find_onset=onset)

    def _below_first(self, chart: Chart, name: str) -> tuple[float, Sighting] | None:
        """The evaluation before the training is above all later ones: the first steps did harm."""
        series, train = chart.series(name), current_metric(chart, _TRAIN)
        values = series.tail(WINDOW)
        if not self.min_falling <= len(values) < WINDOW or max(values[1:]) >= values[0] > 0:
            return None
        later, reading = statistics.fmean(values[1:]), chart.reading(name)
        if not isinstance(reading, Rate) or reading.count < 2:
            return None
        error = _error(reading, values[0], series) * math.sqrt(1 + 1 / (len(values) - 1))
        loss = values[0] - later
        if not loss >= max(self.min_standard_errors * error, self.min_loss * values[0]) > 0:
            return None
        rise, noise = change(chart.series(train))
        if not rise > -noise:
            return None
        text = (
            f"{name} was {values[0]:.3g} at step {series.first_step}, and averages {later:.3g} in "
            f"the {len(values) - 1} evaluations since."
        )
        onset, evidence = partial(_first_below, series, values[0]), (cite(chart, name, values[0]),)
        return loss / values[0], Sighting("warning", text, evidence, find_onset=onset)

    def _lasting_fall(self, chart: Chart, name: str) -> tuple[float, Sighting] | None:
        """Evaluations that fell once and have stayed low while the training reward rises."""
        values, train = chart.series(name).tail(WINDOW), current_metric(chart, _TRAIN)
        count = self._evaluations_before_fall(values)
        start = start_level(chart.series(train))
        if not count or start is None:
            return None
        before, after = statistics.fmean(values[:count]), statistics.fmean(values[count:])
        rise, error = change(chart.series(train))
        if not before - after >= self.min_loss * before > 0:
            return None
        if not rise > self.min_standard_errors * error:
            return None
        text = (
            f"{name} fell from {before:.3g} to {after:.3g} ({len(values) - count} evaluations) "
            f"while {train} rose from {start:.3g} to {start + rise:.3g}."
        )
        step = chart.series(name).steps(len(values))[count]
        evidence = (cite(chart, name, before), cite(chart, train, start))
        severity: Severity = "warning" if len(values) >= self.sure_evaluations else "info"
        sighting = Sighting(severity, text, evidence, find_onset=lambda: step)
        return (before - after) / before, sighting

    def _fall_from_best(self, chart: Chart, name: str) -> tuple[float, Sighting] | None:
        """Every evaluation since the best one is lower than the one before.

        A fall of the training reward that REW002 reports is the better explanation.
        """
        series, train = chart.series(name), current_metric(chart, _TRAIN)
        values, steps = series.tail(WINDOW), series.steps(WINDOW)
        best = max(values, default=0.0)
        first = len(values) - 1 - values[::-1].index(best) if values else 0
        since = values[first:]
        if len(since) <= self.min_falling_uncounted or first == 0:
            return None  # a fall from the first evaluation is another finding
        if not all(later < value for value, later in pairwise(since)):
            return None
        loss = best - since[-1]
        if not loss >= self.min_loss * best > 0:
            return None
        then = level_at(chart.series(train), steps[first])
        lost = max(share_lost(chart.series(train)), outcome_lost(chart))
        if then is None or not lost < COLLAPSE_LOSS:
            return None
        text = (
            f"{name} fell in all {len(since) - 1} evaluations since step {steps[first]}, from "
            f"{best:.3g} to {since[-1]:.3g}."
        )
        evidence = (cite(chart, name, best), cite(chart, train, then))
        step = steps[first + 1]
        return loss / best, Sighting("warning", text, evidence, find_onset=lambda: step)

    def _evaluations_before_fall(self, values: Sequence[float]) -> int:
        """How many evaluations are all above the later ones, beyond the scatter of both; or 0."""
        if not min(values[:2]) > max(values[-self.min_falling :]):
            return 0  # the usual case
        lowest_before = list(accumulate(values, min))
        highest_after = list(accumulate(reversed(values), max))[::-1]
        for count in range(2, len(values) - self.min_falling + 1):
            if not lowest_before[count - 1] > highest_after[count]:
                continue
            before, after = values[:count], values[count:]
            freedom = len(values) - 2
            squares = sum(statistics.pvariance(part) * len(part) for part in (before, after))
            error = math.sqrt(squares / freedom * (1 / count + 1 / len(after)))
            fall = statistics.fmean(before) - statistics.fmean(after)
            if fall > self.min_lasting_errors * error > 0:
                return count
        return 0

    def _exceeds_chance(
        self, chart: Chart, series: Series, loss: float, responses: int, *, is_counted: bool
    ) -> bool:
        """Whether a fall in every evaluation is more than the noise of so many responses."""
        values = series.tail(WINDOW)
        if not is_counted:
            if len(values) >= self.min_falling_uncounted:
                return _falls_beyond_chance(series)
            if not all(later < value for value, later in pairwise(values)):
                return False
            if not loss >= self.critical_loss * values[0]:
                return False
        error = math.sqrt(2 * values[0] * max(1 - values[0], 0.0) / responses)
        if not is_counted:
            return loss >= self.min_falling_errors * error > 0
        is_weak = len(values) < self.min_falling or stands_still(chart)
        errors = self.min_standard_errors if is_weak else self.min_falling_errors
        return loss >= errors * error

    def _fewest_responses(self, values: Sequence[float]) -> int:
        """The fewest responses whose shares these evaluations can be."""
        return max(self.fewest_responses, min(least_count(values), self.most_implied))

    def _best(self, series: Series) -> tuple[float, int]:
        """The best level in the window, and the step of its highest evaluation."""
        count = self.evaluations_per_level
        values, steps = series.tail(WINDOW), series.steps(WINDOW)
        levels = [median(values[i : i + count]) for i in range(len(steps) - count + 1)]
        best = max(levels)
        first = levels.index(best)
        highest = max(range(first, first + count), key=values.__getitem__)
        return best, steps[highest]


def _never_rises(series: Series) -> bool:
    """Whether no evaluation is above the one before, or their order is a fall beyond chance."""
    values = series.tail(WINDOW)
    is_monotonic = all(later <= value for value, later in pairwise(values))
    return is_monotonic or _falls_beyond_chance(series)


def _falls_beyond_chance(series: Series) -> bool:
    """Whether chance puts evaluations in an order that falls as much once in 720 runs, or less.

    Six evaluations that all fall are as rare. Of more evaluations, single ones may rise: the test
    counts the pairs in which the later evaluation is not lower (Kendall's test, one-sided). It is
    exact for few evaluations; the score of the trend is about normal for more.
    """
    values = series.tail(WINDOW)
    if len(values) > _FEW_ORDERS:
        return series.trend <= _RARE_SCORE
    rising = sum(later >= value for value, later in combinations(values, 2))
    return rising <= _most_rising_pairs(len(values))


@lru_cache(maxsize=_FEW_ORDERS)
def _most_rising_pairs(count: int) -> int:
    """The most rising pairs at which an order of so few values is that rare; -1 if none is."""
    orders = [1]  # the number of orders by their number of rising pairs
    for size in range(2, count + 1):
        padded = [0] * (size - 1) + orders + [0] * (size - 1)
        orders = [sum(padded[at : at + size]) for at in range(len(orders) + size - 1)]
    rarest = math.factorial(count) // _RARE_ORDER
    return sum(number <= rarest for number in accumulate(orders)) - 1


def _first_below(series: Series, best: float) -> int:
    """The first evaluation below the first one: the best checkpoint is the one before it."""
    return first_step_where(series, lambda value: value < best)


def _error(reading: Reading, level: float, series: Series) -> float:
    """Standard error of one evaluation: binomial if the count is logged, else from its scatter."""
    if isinstance(reading, Rate) and reading.count > 1:
        share = min(max(level, 1 / reading.count), 1 - 1 / reading.count)
        return math.sqrt(share * (1 - share) / reading.count)
    return step_noise([value for _, value in series])
