"""REW008."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from functools import partial
from typing import ClassVar, NamedTuple

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite
from grpodoctor.rules.shared.groups.zero_variance import zero_variance_cause
from grpodoctor.rules.shared.health.heldout import LOW_ACCURACY, counts_successes, full_mark
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    current_metric,
    first_step_where,
    is_near_ceiling,
    is_solved,
    reading_noise,
)
from grpodoctor.rules.shared.health.whole_run import MIN_TREND_SCORE, quarter_means
from grpodoctor.rules.shared.shapes.level_jumps import largest_jump
from grpodoctor.rules.shared.shapes.trend import change, start_level
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import level_shift
from grpodoctor.runs.series import BASELINE, WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition

_HELDOUT = ("accuracy/heldout", "reward/heldout")
_TRAIN = ("reward/mean", "accuracy/train")


class _Course(NamedTuple):
    """Held-out level and training reward, before and after, over the same steps."""

    before: float
    after: float
    compared: tuple[int, int]
    """Evaluations behind the two held-out levels."""
    evaluations: list[float]
    train_before: float
    train_after: float

    @property
    def rise(self) -> float:
        """Rise of the held-out level."""
        return self.after - self.before

    @property
    def train_rise(self) -> float:
        """Rise of the training reward."""
        return self.train_after - self.train_before

    def by_levels(self) -> tuple[float, float]:
        """The held-out rise of the levels, which see a rise that is over early.

        With its standard error, in standard deviations of one evaluation.
        """
        # The median of n normal values has a standard error of sqrt(pi / 2n) standard deviations.
        return self.rise, math.sqrt(math.pi / 2 * sum(1 / count for count in self.compared))

    def by_line(self) -> tuple[float, float]:
        """The same along a line through all evaluations, more exact for a rise that lasts."""
        count = len(self.evaluations)
        slope = statistics.linear_regression(range(count), self.evaluations).slope
        between = count - sum(self.compared) / 2  # from middle to middle of the two levels
        return slope * between, between * math.sqrt(12 / (count * (count * count - 1)))


def _deviation(before: float, after: float) -> float:
    """Standard deviation of one success, at the middle of two shares of successes."""
    share = min(max((before + after) / 2, 0.0), 1.0)  # a level may be older than the window
    return math.sqrt(share * (1 - share))


def _level_between(series: Series, first: int, last: int) -> float:
    """The median of the readings from one step to another, also of those before the window."""
    values, begin = series.whole_run(), series.first_step
    per_step = (len(values) - 1) / max(1, series.last_step - begin)
    places = (round(max(0, step - begin) * per_step) for step in (first, last))
    low, high = (min(place, len(values) - 1) for place in places)
    return statistics.median(values[low : high + 1])


def _scatter(values: list[float]) -> float:
    """Standard deviation of a few readings around their line."""
    line = statistics.linear_regression(range(len(values)), values)
    errors = [value - line.intercept - line.slope * at for at, value in enumerate(values)]
    return math.sqrt(sum(error * error for error in errors) / (len(values) - 2))


class HeldOutStall(Rule):
    """The training reward rises while held-out evaluation does not.

    What it sees:
        A training reward that rose well beyond its noise, and held-out evaluations that are no
        higher than they were, over the same steps: the whole run, or the latest 128 readings. A
        rise of at most 2.5 standard errors counts as none if even two more would be less than a
        fifth of the training reward's rise since the first evaluations. Where the two have
        different units, each rise counts in its own: a share of successes in standard deviations of
        one success, a reward as a share of its level or of its spread over the responses, whichever
        is larger. The onset is the step at which the training reward began to rise. The finding is
        a warning from eight evaluations on, if 2.5 standard errors more would be less than a fifth
        as well, and `info` otherwise. A fall of the evaluations is reported by REW003. If the
        training prompts are solved, three evaluations are enough, if the latest two are below .8
        and no higher than the first, whether they stayed or fell. From eight evaluations on, if
        both began alike, or the evaluations at half of the training reward or more, and the
        training prompts are solved or the reward is above .9, a rise below half of the training
        reward's counts as none. A slow rise of a share of successes, which only the whole run
        shows, is `info` if the evaluations share less than half of it or fall. So is a training
        outcome that stays below .8 of the held-out one from the start where that does not rise:
        the labels may be those of other prompts. Neither counts where a limit cuts a tenth of the
        responses.

    Why it matters:
        The policy gets better at the training prompts or at the reward function, and not at the
        task. It memorizes answers, exploits a shaped reward, or learns a format that the evaluation
        does not count.

    Evidence it needs:
        `accuracy/heldout` or `reward/heldout`, at least eight evaluations, and `reward/mean` or
        `accuracy/train`. Three evaluations of `accuracy/heldout` once the training prompts are
        solved. Optional: `groups/all_correct_rate`.

    Remedies:
        Compare training and evaluation on the same ten prompts. Check the reward function, add
        prompts, or add a KL penalty.

    When it is wrong:
        A held-out set of other difficulty moves later than the training reward. With few held-out
        prompts a rise stays within the error of an evaluation. A policy that is at its ceiling on
        the held-out set cannot rise there; the rule leaves out levels above .9 of a share.

    References:
        Gao et al. 2022, Scaling Laws for Reward Model Overoptimization, arXiv 2210.10760.
    """

    code: ClassVar[str] = "REW008"
    name: ClassVar[str] = "held-out-stall"
    condition: ClassVar[Condition] = "held-out-loss"
    summary: ClassVar[str] = "The training reward rises while held-out evaluation does not."
    inputs: ClassVar[tuple[Need, ...]] = (_HELDOUT, _TRAIN)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "kl-penalty", "refilter-prompts")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2210.10760",)
    persistence: ClassVar[int] = 2
    judges_levels: ClassVar[bool] = True
    clearance: ClassVar[int] = 3

    solved_evaluations: int = 3
    """Evaluations that are enough once the training prompts are solved: a policy that solves them
    by the task and not by heart, or by a fault of the reward, solves more held-out prompts."""
    min_all_correct: float = 0.6
    """Share of all-correct groups from which the training prompts count as solved; see GRP001."""
    min_evaluations: int = 6
    """Evaluations for `info`: three in each half."""
    sure_evaluations: int = 8
    """Evaluations for a warning. Five are too few: in a healthy public run, noise kept the last two
    of five no higher than the first."""
    solved_share: float = 0.5
    """Rise of the evaluations as a share of the training reward's, up to which the rise of a policy
    that solves its training prompts is mostly not the task: on prompts of one kind it is 1."""
    slow_share: float = 0.05
    """Rise of the training reward, between the means of its first and last quarter, that is worth a
    note if the evaluations rise by less than half of it: in standard deviations of a response. Two
    standard errors of that difference, for two quarters of 30 batches of 100 responses."""
    similar_start: float = 0.2
    """Difference of the first evaluations and the training reward up to which both began alike."""
    similar_scale: float = 3.0
    """Ratio of the highest held-out and the highest training reward up to which both may have one
    unit. Held-out prompts that are three times as hard as those of the training are unusual."""
    start_share: float = 0.5
    """Part of the training reward at the start from which the evaluations are no harder task: they
    have room to rise as well."""
    first_evaluations: int = 3
    """Evaluations that make the level at the start: a run that learns in its first steps is at its
    plateau by the fifth."""
    far_below: float = 0.8
    """Training outcome at the start, as a part of the held-out one, that is far below it: held-out
    prompts of the same kind are as hard. Of 324 healthy simulated runs, one was below .85, and its
    evaluations rose by nine standard errors (tests/benchmarks/planted_mechanisms)."""
    min_long_readings: int = 80
    """Readings of the training outcome in which a run that learns has risen in both."""
    max_truncated: float = 0.1
    """Share of truncated responses that keeps both outcomes low."""
    min_rise: float = 4.0
    """Standard errors by which the training reward must have risen over the same steps."""
    min_share: float = 0.25
    """Minimum rise of the training reward as a share of its spread over the responses, or of its
    level where the spread is not logged: a small rise need not show elsewhere. Shares of successes
    spread as their mean implies."""
    ceiling: float = 0.9
    """Held-out share above which little is left to gain."""
    negligible_share: float = 0.2
    """Share of the training reward's rise below which the held-out rise must be, with two standard
    errors added. Half of all stalls end a little higher than they began, by chance alone. A true
    rise of this share stays below it in one evaluation of forty."""
    sure_errors: float = 2.0
    """Standard errors that are added to a held-out rise for the largest rise that it may be."""
    certain_errors: float = 2.5
    """The same for a warning. Each evaluation is another look: of 600 simulated runs whose held-out
    level rose by a fifth or a quarter of the training reward's rise, 1.3 % were an alarm at any
    time, and 64 % of 200 true stalls (tests/benchmarks/bench_chance.py)."""
    chance_errors: float = 2.5
    """Standard errors up to which a held-out rise may be chance: two estimators at a dozen
    evaluations exceed it in one stall of fifty."""
    begun_share: float = 0.1
    """Share of the training reward's rise that dates the onset."""
    min_fall: float = 0.2
    """Share of the level whose loss is a fall, which REW003 judges; it overlooks half of that in a
    dozen evaluations."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare evaluations and training over the same steps: the whole run, or the window."""
        name, train = current_metric(chart, _HELDOUT), current_metric(chart, _TRAIN)
        heldout = chart.series(name)
        if (solved := self._while_solved(chart, name, train)) is not None:
            return solved
        if len(heldout) < self.min_evaluations:
            return None
        highest = heldout.window_max()
        if self.ceiling <= highest <= 1 and heldout.level(WINDOW) >= self.ceiling:
            return None
        if heldout.window_min() == highest:  # REW009 reports it
            return None
        found = self._judge(chart, name, train, self._since_start(chart, train, name))
        if found is not None:
            return found
        slow = self._slow_rise(chart, name, train) or self._far_below(chart, name, train)
        if slow is not None:
            return None if self._is_cut(chart) else slow
        since = chart.series(train).steps(WINDOW)[0]
        recent = heldout.tail(len(heldout) - bisect_left(heldout.steps(WINDOW), since))
        if len(recent) < self.sure_evaluations:
            return None
        return self._judge(chart, name, train, self._in_window(chart, train, recent))

    def _while_solved(self, chart: Chart, name: str, train: str) -> Sighting | None:
        """Solved training prompts, and evaluations that are low and have not risen."""
        if len(chart.series(name)) < self.solved_evaluations:
            return None
        is_whole = self._is_solved(chart)
        if not is_whole and not is_near_ceiling(chart.series(train)):
            return None  # the usual case, without reading the window
        values = chart.series(name).tail(WINDOW)
        if not counts_successes(chart, name, train):
            return None
        if name.startswith("reward/") and full_mark(chart) > 1:  # GRP001 compares them
            return None
        series, start = chart.series(train), start_level(chart.series(train))
        is_low = is_whole and max(values[-2:]) <= min(values[0], LOW_ACCURACY)
        is_low = is_low or self._lags(chart, name, values, start, series.level(RECENT))
        if not is_low:
            return None
        rise, error = change(series)
        if start is None or not rise > max(
            self.min_rise * error, self.min_share * self._scale(chart, train)
        ):
            return None
        text = (
            f"{train} rose from {start:.3g} to {series.level(RECENT):.3g}, "
            f"but {name} went from {values[0]:.3g} to {values[-1]:.3g}."
        )
        evidence = (cite(chart, name, values[0]), cite(chart, train, start))
        onset = partial(self._onset, series, start, series.level(RECENT) - start)
        return Sighting("warning", text, evidence, find_onset=onset)

    def _lags(
        self, chart: Chart, name: str, values: list[float], start: float | None, now: float
    ) -> bool:
        """Whether evaluations that began like the training reward rose less than half as far."""
        if len(values) < self.sure_evaluations or start is None or not self._is_share(chart, name):
            return False
        early, late = values[: self.first_evaluations], values[-len(values) // 3 :]
        before, after = statistics.median(early), statistics.median(late)
        is_similar = abs(before - start) <= self.similar_start or before >= self.start_share * start
        if not is_similar or max(after, *values[-2:]) > LOW_ACCURACY:
            return False
        factor = math.sqrt(math.pi / 2 * (1 / len(early) + 1 / len(late)))
        error = reading_noise(chart.series(name)) * factor
        return after - before + 2 * error < self.solved_share * (now - start)

    def _slow_rise(self, chart: Chart, name: str, train: str) -> Sighting | None:
        """A small rise of the training reward that only the whole run shows, and no evaluation.

        Prompts whose labels are wrong are learned by heart, one by one.
        """
        series, values = chart.series(train), chart.series(name).tail(WINDOW)
        if len(values) < self.sure_evaluations or not series.trend >= MIN_TREND_SCORE:
            return None
        if not (self._is_share(chart, name) and self._is_share(chart, train)):
            return None
        first, last = quarter_means(series)
        if not last - first >= self.slow_share * _deviation(first, last):
            return None
        count = len(values) // 3
        before, after = statistics.fmean(values[:count]), statistics.fmean(values[-count:])
        error = max(reading_noise(chart.series(name)), _scatter(values)) * math.sqrt(2 / count)
        may_rise = after - before > self.sure_errors * error
        if may_rise or not after - before + error < self.solved_share * (last - first):
            return None
        text = (
            f"{train} rose from {first:.3g} to {last:.3g}, "
            f"but {name} went from {before:.3g} to {after:.3g}."
        )
        evidence = (cite(chart, name, before), cite(chart, train, first))
        first_step = series.first_step
        return Sighting("info", text, evidence, find_onset=lambda: first_step)

    def _far_below(self, chart: Chart, name: str, train: str) -> Sighting | None:
        """A training outcome far below the held-out one from the start, which never rises.

        A policy that learns rises in both, and the gap closes. One that learns wrong labels by
        heart rises slowly in the training alone.
        """
        series, values = chart.series(train), chart.series(name).tail(WINDOW)
        if len(values) < self.sure_evaluations or len(series) < self.min_long_readings:
            return None
        if not (self._is_share(chart, name) and self._is_share(chart, train)):
            return None
        count = len(values) // 3
        before, after = statistics.fmean(values[:count]), statistics.fmean(values[-count:])
        first, last = quarter_means(series)
        if not first <= self.far_below * before or not first < last <= self.ceiling * after:
            return None
        error = max(reading_noise(chart.series(name)), _scatter(values)) * math.sqrt(2 / count)
        shared = self.solved_share * (last - first)
        if after - before > error or after - before > max(shared, 0.0):
            return None
        text = (
            f"{train} stays below {name} ({last:.2g} and {after:.2g}), which does not rise: "
            "training labels may be wrong."
        )
        evidence = (cite(chart, name, before), cite(chart, train, first))
        first_step = series.first_step
        return Sighting("info", text, evidence, find_onset=lambda: first_step)

    def _is_cut(self, chart: Chart) -> bool:
        """Whether a limit cuts so many responses that the evaluations cannot rise: see LEN002."""
        truncated = chart.series("length/truncated_rate")
        return len(truncated) > 0 and truncated.level(WINDOW) >= self.max_truncated

    def _is_share(self, chart: Chart, name: str) -> bool:
        """Whether all evaluations are between 0 and 1."""
        return chart.series(name).is_within(0, 1)

    def _onset(self, series: Series, start: float, rise: float) -> int:
        """The step that made half of the rise of the training reward, else that of its beginning.

        Such a step is no learning, and what happened then explains the rise.
        """
        jump = largest_jump(series)
        if jump is not None and jump[1][1] - jump[1][0] >= rise / 2:
            return series.steps(jump[0])[0]
        risen = start + self.begun_share * rise
        return first_step_where(series, lambda value: value >= risen)

    def _is_solved(self, chart: Chart) -> bool:
        all_correct = chart.series("groups/all_correct_rate")
        if len(all_correct):
            many = all_correct.level(2 * RECENT) >= self.min_all_correct
        else:
            equal = chart.series("groups/zero_variance_rate")
            many = len(equal) > 0 and equal.level(2 * RECENT) >= self.min_all_correct
            many = many and zero_variance_cause(chart) == "all-correct"
        return many or is_solved(chart)

    def _since_start(self, chart: Chart, train: str, heldout: str) -> _Course | None:
        """The course since the start of the run; None if the training reward has not risen."""
        series, start = chart.series(train), start_level(chart.series(train))
        rise, error = change(series)
        if start is None or not rise > self.min_rise * error:
            return None
        values, steps = chart.series(heldout).tail(WINDOW), chart.series(heldout).steps(WINDOW)
        late = values[-len(values) // 3 :]
        first, early = chart.series(heldout).start, values[: self.first_evaluations]
        after, reached = statistics.median(late), series.level(RECENT)
        if len(values) >= WINDOW and first is not None:
            return _Course(first.level, after, (BASELINE, len(late)), values, start, reached)
        # A run that learns at once has a part of its rise behind it at the first evaluations.
        begun = _level_between(series, steps[0], steps[len(early) - 1])
        start = max(start, begun)
        compared = (len(early), len(late))
        return _Course(statistics.median(early), after, compared, values, start, reached)

    def _in_window(self, chart: Chart, train: str, heldout: list[float]) -> _Course | None:
        values = chart.series(train).tail(WINDOW)
        middle = len(values) // 2
        train_before, train_after = map(statistics.median, (values[:middle], values[middle:]))
        # The shift, which takes longest, is positive only if the median has risen.
        if not train_after > train_before or (
            not level_shift(values[:middle], values[middle:]) >= self.min_rise
        ):
            return None
        early, late = heldout[: len(heldout) // 2], heldout[-len(heldout) // 3 :]
        before, after = statistics.median(early), statistics.median(late)
        compared = (len(early), len(late))
        return _Course(before, after, compared, heldout, train_before, train_after)

    def _judge(self, chart: Chart, name: str, train: str, course: _Course | None) -> RuleResult:
        if course is None or not course.train_rise >= self.min_share * self._scale(chart, train):
            return None
        before, after = course.before, course.after
        if after < before - self.min_fall * abs(before):
            return None
        severity = self._stall(chart, name, train, course)
        if severity is None:
            return None
        text = (
            f"{train} rose from {course.train_before:.3g} to {course.train_after:.3g}, "
            f"but {name} went from {before:.3g} to {after:.3g}."
        )
        evidence = (cite(chart, name, before), cite(chart, train, course.train_before))
        onset = partial(self._onset, chart.series(train), course.train_before, course.train_rise)
        return Sighting(severity, text, evidence, find_onset=onset)

    def _stall(self, chart: Chart, name: str, train: str, course: _Course) -> Severity | None:
        """How surely the held-out level has not risen; None if it may have.

        A fall excludes a rise only as far as the noise lets it: otherwise it is a note.
        """
        noise, errors_for_warning = reading_noise(chart.series(name)), self.sure_errors
        most = self._negligible(chart, name, train, course)
        rise, errors = course.by_levels()
        if course.rise > 0 and not rise + self.sure_errors * errors * noise < most:
            return None  # the usual case, which more noise does not change
        # Medians of rare successes are 0, and do not scatter. Otherwise, the robust noise of a
        # dozen readings is often too small by half, and each evaluation is another look.
        if course.before or course.after:
            errors_for_warning = self.certain_errors
            noise = max(noise, _scatter(course.evaluations))
        rises = []
        for estimate in (course.by_levels, course.by_line):
            rise, errors = estimate()
            if rise > max(self.chance_errors * errors * noise, 0.0):
                return None
            rises.append((rise, errors * noise))
        if course.rise > 0 and not all(
            rise + self.sure_errors * error < most for rise, error in rises
        ):
            return None
        is_certain = any(rise + errors_for_warning * error < most for rise, error in rises)
        is_certain = is_certain and len(chart.series(name)) >= self.sure_evaluations
        return "warning" if is_certain else "info"

    def _negligible(self, chart: Chart, name: str, train: str, course: _Course) -> float:
        """The held-out rise that is a small part of the training reward's."""
        if self._is_comparable(chart, name, train):
            return self.negligible_share * course.train_rise
        unit = self._train_unit(chart, train, course) or course.train_rise
        gained = min(1.0, course.train_rise / unit)
        return self.negligible_share * gained * self._heldout_unit(chart, name, course)

    def _train_unit(self, chart: Chart, train: str, course: _Course) -> float:
        """A rise of the training reward that is large, in its own unit."""
        if self._is_share(chart, train):
            return _deviation(course.train_before, course.train_after)
        levels = abs(course.train_before), abs(course.train_after)
        return max(self._scale(chart, train), *levels)

    def _heldout_unit(self, chart: Chart, name: str, course: _Course) -> float:
        """The same for the held-out level; both medians are 0 where successes are rare."""
        levels, mean = (course.before, course.after), statistics.fmean(course.evaluations)
        if self._is_share(chart, name):
            return _deviation(*levels) or _deviation(mean, mean)
        return max(map(abs, levels)) or abs(mean)

    def _is_comparable(self, chart: Chart, name: str, train: str) -> bool:
        """Whether both have one unit: accuracies, numbers between 0 and 1, or similar rewards.

        A reward of 10 for a correct response may be one of 1 in the evaluations, or the reverse.
        """
        if self._is_share(chart, name) and self._is_share(chart, train):
            return True
        if name.split("/", maxsplit=1)[0] != train.split("/", maxsplit=1)[0]:
            return False
        sizes = [
            max(abs(series.window_max()), abs(series.window_min()))
            for series in map(chart.series, (name, train))
        ]
        return max(sizes) <= self.similar_scale * min(sizes)

    def _scale(self, chart: Chart, train: str) -> float:
        spread = chart.series("reward/std")
        if train == "reward/mean" and len(spread):
            return spread.level(RECENT)
        series = chart.series(train)
        level, start = series.level(RECENT), start_level(series)
        if start is None or not self._is_share(chart, train):
            return abs(level)
        return min(abs(level), _deviation(start, level))
