"""REW002."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import (
    RECOVERED,
    Evidence,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite,
    cite_all,
)
from grpodoctor.rules.shared.health.component_roles import task_component
from grpodoctor.rules.shared.health.reward_components import PREFIX, component_name
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    first_step_where,
    is_near_best,
    level_at,
    reading_noise,
    selection_bias,
    share_lost,
)
from grpodoctor.rules.shared.health.whole_run import quarter_means, rises_over_run
from grpodoctor.rules.shared.outcome.fall_reasons import fall_from_outside, harmless_fall
from grpodoctor.rules.shared.outcome.flat_outcome import reference_kl
from grpodoctor.rules.shared.outcome.kept_policy import FALL_FROM_OUTSIDE, fell_from_outside
from grpodoctor.rules.shared.reward_parts.kept_reward import reward_is_kept
from grpodoctor.rules.shared.shapes.small_falls import joint_fall, step_fall
from grpodoctor.rules.shared.shapes.task_stages import fall_with_stage
from grpodoctor.rules.shared.updates.usual_updates import usual_updates
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.estimators import step_noise
from grpodoctor.runs.series import OPENING, WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition

_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_ALL_INCORRECT = "groups/all_incorrect_rate"
_ZERO_VARIANCE = "groups/zero_variance_rate"
_RETURN = ("stop-training", "lower-learning-rate", "fewer-updates")
"""Remedies where the best checkpoint is an earlier one."""

_TEST_FIRST = ("recheck-reward", "lower-learning-rate", "fewer-updates", "stop-training")
"""Remedies where the updates are of the usual size: what they follow may be wrong."""

_LATEST = 5
_BEFORE = 30
"""Readings after and before a sharp fall. Five readings in a row below the tenth percentile have a
probability of 1e-5 without a change."""


class RewardCollapse(Rule):
    """Accuracy or reward has fallen far below the best level of the run.

    What it sees:
        The recent level of accuracy, or of reward where accuracy is not logged, compared with the
        run's own best level, beyond the noise of a single reading. A run can fail within its first
        ten readings, before it has a best level. The rule then compares with the first three
        readings, with a first reading above all others, or checks whether nearly all groups are
        all-incorrect now while few were at first.
        A sharp fall is reported after five readings below nearly all earlier ones. With few
        responses per batch no level is certain, so a fall over the whole run counts as well.
        A fall that is too small for an alarm, but beyond chance and lasting, is a note: an earlier
        checkpoint is better than the present one.

        The only component that correct responses earn, next to one for their form, is examined as
        well, since the sum hides its fall: it must have been low for sixty readings.
        Accuracy that falls while the reward does not is reported by REW005. If it fell within one
        reading while the policy stayed where it was, or if held-out accuracy or reward is as high
        as before, the text says so: the training prompts, the environment or the verifier changed.
        A smaller fall that the held-out evaluations share is a warning as well. A fall of a quarter
        within one reading, which they do not share, is a note until the level is back.
        The finding ends when the level is within a tenth of the best one, and is `info` if held-out
        accuracy or reward rises through the fall: the training prompts became harder, or the
        verifier changed. So is a fall that comes with another stage of a curriculum and leaves what
        that stage began with. Other falls that leave less than a tenth stay critical: next to
        nothing is left to learn from.

    Why it matters:
        A policy rarely recovers: the responses that would teach it are no longer sampled. The last
        checkpoint before the onset still has what was learned.

    Evidence it needs:
        `accuracy/train` or `reward/mean`. Optional: `groups/all_incorrect_rate`.

    Remedies:
        Return to a checkpoint before the onset. If MIS002 is also reported, fix that first;
        otherwise lower the learning rate or make fewer updates per batch. If KL divergence or
        clipping of the updates, gradient norm and entropy are those of runs that learn, test the
        reward first: scores that belong to other responses look like this. If the policy did not
        move, repair the environment, its tools or the verifier instead.

    When it is wrong:
        Harder prompts in a curriculum, or a change of the reward or the sampling temperature, lower
        accuracy and reward without harming the policy. Without held-out readings before and after
        it, or a column with the stage of the curriculum, such a fall looks the same.

    References:
        Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training.
    """

    code: ClassVar[str] = "REW002"
    name: ClassVar[str] = "reward-collapse"
    condition: ClassVar[Condition] = "reward-loss"
    summary: ClassVar[str] = "Accuracy or reward has fallen far below the best level of the run."
    inputs: ClassVar[tuple[Need, ...]] = ((_ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("lower-learning-rate", "fewer-updates", "stop-training")
    references: ClassVar[tuple[str, ...]] = (
        "Yao et al. 2025, Your Efficient RL Framework Secretly Brings You Off-Policy RL Training",
    )
    clearance: ClassVar[int] = 2 * RECENT
    judges_levels: ClassVar[bool] = True

    warning_loss: float = 0.35
    """Share of the best level that is lost. In small runs (accuracy .7) the best of many levels is
    up to .08 above the typical one by chance, a loss of .2; collapses lose .6 and more."""
    critical_loss: float = 0.6
    """Share whose loss is critical: runs with a wrong importance ratio go from .45 to .12, a loss
    of .73."""
    certain_loss: float = 0.5
    """Share that must be lost beyond chance for a critical finding: with batches of eight responses
    the best level is about .2 too high, and the worst as much too low."""
    all_incorrect_share: float = 0.6
    """Share of all-incorrect groups that no useful policy reaches."""
    all_incorrect_rise: float = 0.4
    """Rise of that share since the first readings. A learning rate twenty times too high took it
    from .06 to .94 while accuracy varied between .05 and .25."""
    min_trend: float = 4.0
    """Standard score of a fall over the whole run. Without a trend, none of 1,600 simulated runs
    reached it and lost a third: batches of eight responses, and single prompts of many kinds."""
    min_joint_trend: float = 3.5
    """The same where the groups without variance become more over the whole run: a fall to zero
    makes groups all-incorrect. None of 1,200 simulated runs without a trend reached it and lost a
    third, whatever their groups did; one in a hundred reached 3.0."""
    note_trend: float = 3.0
    """The same for `info` in a run of up to 127 readings: one in a hundred without a trend reached
    it."""
    min_trend_readings: int = 24
    """Readings for that: six in each quarter."""
    min_readings: int = 13
    """Minimum readings: the first three and the current level must not overlap."""
    min_early_readings: int = 8
    """The same for a run that lost nearly all within its first ten: three readings and five."""

    gone_share: float = 0.1
    """Share of the first readings that five in a row are all below, so that no more are needed."""
    noted_loss: float = 0.15
    """Share that is worth a note if it is lost beyond chance over twenty readings."""
    noted_noises: float = 4.0
    """Multiple of a reading's noise that such a loss exceeds: eleven standard errors of the
    difference of two such means; the choice of the best of many means uses up to three."""
    lasting_readings: int = 60
    """Readings for which the only component that correct responses earn is below its best."""
    min_lasting_noises: float = 1.8
    """Multiple of a reading's noise: five standard errors of the difference of two such means;
    the choice of the best of many blocks uses up to three."""
    min_after_first: int = 8
    """Readings after a first one that is above all of them."""
    min_first_noises: float = 6.0
    """Multiple of their noise by which it must be above their level: of 20,000 simulated runs
    around one level, whose noise was a tenth to a half of it, three did so."""
    min_alive: int = 3
    """Readings above 0, without a single 0, before a reward that breaks off."""
    min_dead: int = 8
    """Readings of exactly 0 after them. At a share q of readings above 0, chance gives this order
    with q^3 (1 - q)^7, at most .0022 whatever the share."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with the best."""
        name = _ACCURACY if chart.is_fresh(_ACCURACY) else _REWARD
        sighting = (
            self._from_higher_opening(chart, name)
            or self._from_best(chart, name)
            or self._from_opening(chart, name)
            or self._from_first(chart, name)
            or self._breaks_off(chart, name)
            or self._sharp_fall(chart, name)
            or self._slow_fall(chart, name)
        )
        if sighting is None and name == _REWARD:
            task = task_component(chart)
            sighting = self._lasting_fall(chart, task) if task else None
        if sighting is None:
            if is_near_best(chart.series(name)):
                return RECOVERED
            sighting = joint_fall(chart, name) or self._lost_part(chart, name)
        if sighting is None:
            return self._step_fall(chart, name)
        with_stage = fall_with_stage(chart, sighting)
        if with_stage is not None:
            return with_stage
        from_outside = fall_from_outside(chart, sighting)
        if from_outside is not None and self._is_gone(chart, sighting):
            return from_outside  # nothing is left to learn from, whatever the policy can do
        return harmless_fall(chart, sighting) or from_outside or _by_updates(chart, sighting)

    def _step_fall(self, chart: Chart, name: str) -> Sighting | None:
        """A fall within one reading, where evaluations show that the policy did not cause it."""
        sighting = step_fall(chart, name)
        if sighting is None:
            return None
        return harmless_fall(chart, sighting) or fall_from_outside(chart, sighting)

    def _is_gone(self, chart: Chart, sighting: Sighting) -> bool:
        """Whether a critical fall leaves next to nothing of the level before it."""
        metric, before = sighting.evidence[0].metric, sighting.evidence[0].baseline
        if sighting.severity != "critical" or before is None:
            return False
        return chart.series(metric).level(RECENT) <= self.gone_share * before

    def _from_best(self, chart: Chart, name: str) -> Sighting | None:
        series = chart.series(name)
        best = series.highest
        if best is None or series.last >= best.level:
            return None
        lost = share_lost(series)
        by_groups = self._from_groups(chart, name) if lost < self.warning_loss else None
        if lost < self.warning_loss and by_groups is None:
            return None
        if name == _ACCURACY and self._is_reward_kept(chart, best.step):
            return None
        if by_groups is not None:
            return by_groups
        text = (
            f"{_noun(name)} fell from {best.level:.3g} (best, around step {best.step}) to "
            f"{_now(series)}."
        )
        # Both levels are extremes of many: the best one, and the current one, tested at each step.
        is_certain = lost - 2 * selection_bias(series) >= self.certain_loss
        severity: Severity = "critical" if lost >= self.critical_loss and is_certain else "warning"
        onset = self._half_way(series, best.level, after=best.step)
        evidence: tuple[Evidence, ...] = (cite(chart, name, best.level),)
        why = fell_from_outside(chart, series)
        if why:
            text = f"{_noun(name)} fell from {best.level:.3g} to {_now(series)} {why}."
            evidence += cite_all(chart, reference_kl(chart))
        return Sighting(severity, text, evidence, FALL_FROM_OUTSIDE if why else None, onset)

    def _lasting_fall(self, chart: Chart, name: str) -> Sighting | None:
        """A noisy component that has been far below its best for long, whatever the sum does.

        Of 6,400 simulated runs around one level, three did so, all of them of 1,000 readings.
        """
        series = chart.series(name)
        best = series.highest
        if best is None or best.level <= 0 or len(series) < 2 * self.lasting_readings:
            return None
        readings = series.tail(self.lasting_readings)
        now = max(statistics.median(readings), statistics.fmean(readings))
        lost = min(best.level, best.mean) - now
        if not lost >= self.warning_loss * best.level:
            return None
        noise = max(reading_noise(series), statistics.pstdev(readings))
        if not lost > self.min_lasting_noises * noise or best.step > series.steps(len(readings))[0]:
            return None
        text = (
            f"{_noun(name)} fell from {best.level:.3g} (best, around step {best.step}) to "
            f"{now:.3g}; the rest of the reward hides it."
        )
        onset = self._half_way(series, best.level, after=best.step)
        evidence = (cite(chart, name, best.level), cite(chart, _REWARD))
        return Sighting("warning", text, evidence, find_onset=onset)

    def _from_higher_opening(self, chart: Chart, name: str) -> Sighting | None:
        """A run that never came near its first readings again: no later level is its best one."""
        series = chart.series(name)
        opening, best = series.opening, series.highest
        if opening is None or best is None:
            return None
        is_far_above = best.level <= (1 - self.warning_loss) * opening.level
        return self._from_opening(chart, name) if is_far_above else None

    def _from_opening(self, chart: Chart, name: str) -> Sighting | None:
        """A run that fell within its first ten readings and has no better level than that."""
        series = chart.series(name)
        opening = series.opening
        if opening is None or opening.level <= 0 or len(series) < self.min_early_readings:
            return None
        later = min(len(series) - OPENING, 2 * RECENT)
        now = series.level(later)
        if opening.level <= now or not opening.level - now > 4 * reading_noise(series):
            return None
        left = max(series.tail(min(later, RECENT))) / opening.level
        is_gone = max(series.tail(_LATEST)) <= self.gone_share * opening.level
        is_dead = is_gone or left <= 1 - self.critical_loss
        # On a scale with negative values, a third of a small level is no loss.
        is_positive = series.lowest is not None and series.lowest.level > 0
        is_long = len(series) >= self.min_readings
        if not is_dead and not (is_long and left <= 1 - self.warning_loss and is_positive):
            return None
        if name == _ACCURACY and self._is_reward_kept(chart, opening.step):
            return None
        text = f"{_noun(name)} fell from {opening.level:.3g} at the start to {now:.3g}."
        severity: Severity = "critical" if is_dead else "warning"
        onset = self._half_way(series, opening.level)
        return Sighting(severity, text, (cite(chart, name, opening.level),), find_onset=onset)

    def _from_first(self, chart: Chart, name: str) -> Sighting | None:
        """A run whose first reading is above all others: it lost a warm start in one interval."""
        series = chart.series(name)
        first = series.first_value
        kept = (1 - self.warning_loss) * first if first is not None else 0.0
        if len(series) > RECENT and series.level(RECENT) > kept:
            return None  # the usual case; the noise takes longer
        # The window of a long run no longer contains the first reading.
        later = series.tail(WINDOW)[len(series) < WINDOW :]
        if first is None or first <= 0 or len(later) < self.min_after_first:
            return None
        levels = [level.level for level in (series.highest,) if level is not None]
        best, now = max(*later, *levels), series.level(min(len(later), RECENT))
        # With rare successes, the first batch may be the only one that has any.
        is_lost = min(later) > 0 and now <= (1 - self.warning_loss) * first
        noise = step_noise(later)
        if (
            not is_lost
            or not first - best > noise
            or not first - now > self.min_first_noises * noise
        ):
            return None
        reward = chart.series(_REWARD)
        if name == _ACCURACY and reward.head(1) and reward.level(RECENT) >= reward.head(1)[0]:
            return None  # REW005 reports it
        text = f"{_noun(name)} fell from {first:.3g} in the first reading to {now:.3g}."
        middle, steps = (first + now) / 2, series.steps(len(later))
        onset = next(step for step, value in zip(steps, later, strict=True) if value <= middle)
        evidence = (cite(chart, name, first),)
        return Sighting("warning", text, evidence, find_onset=lambda: onset)

    def _breaks_off(self, chart: Chart, name: str) -> Sighting | None:
        """A short run in which every response earned something at first, and none does now."""
        series = chart.series(name)
        if not self.min_alive + self.min_dead <= len(series) < WINDOW or series.last:
            return None
        values = [value for _, value in series]
        alive = values.index(0)
        if alive < self.min_alive or len(values) - alive < self.min_dead:
            return None
        if min(values[:alive]) <= 0 or any(values[alive:]):
            return None
        before, step = statistics.median(values[:alive]), series.steps(len(values))[alive]
        text = (
            f"{_noun(name)} fell from {before:.3g} to exactly 0 at step {step}, "
            f"for {len(values) - alive} readings since."
        )
        evidence = (cite(chart, name, before),)
        return Sighting("critical", text, evidence, find_onset=lambda: step)

    def _sharp_fall(self, chart: Chart, name: str) -> Sighting | None:
        """Five readings in a row below nearly all of the thirty readings before the fall.

        It sees a run that breaks off sooner than the comparison of levels does.
        """
        series = chart.series(name)
        left, best = 1 - self.critical_loss, series.highest
        if best is None or series.window_min() > left * best.level:
            return None  # the usual case
        now = series.level(_LATEST)
        if not now <= left * best.level:
            return None
        before = series.tail(_BEFORE + RECENT)[:_BEFORE]
        usual, low = statistics.median(before), sorted(before)[len(before) // 10]
        if len(series) < _BEFORE + RECENT or not max(series.tail(_LATEST)) < low:
            return None
        if usual <= 0 or not now <= left * usual:
            return None
        if name == _ACCURACY and self._is_reward_kept(chart, series.steps(_BEFORE)[0]):
            return None
        text = f"{_noun(name)} fell sharply from {usual:.3g} to {now:.3g} in {RECENT} readings."
        onset = self._half_way(series, usual)
        evidence: tuple[Evidence, ...] = (cite(chart, name, usual),)
        why = fell_from_outside(chart, series)
        if why:
            text = f"{_noun(name)} fell from {usual:.3g} to {now:.3g} {why}."
            evidence += cite_all(chart, reference_kl(chart))
        return Sighting("critical", text, evidence, FALL_FROM_OUTSIDE if why else None, onset)

    def _slow_fall(self, chart: Chart, name: str) -> Sighting | None:
        """A noisy outcome that falls over the whole run: no single level shows it."""
        series = chart.series(name)
        if len(series) < self.min_trend_readings or series.start is None:
            return None
        # A trend that is tested at each of many steps reaches the weaker score by chance.
        weakest = self.note_trend if len(series) < WINDOW else self.min_joint_trend
        if series.level(RECENT) >= series.start.level or not series.trend <= -weakest:
            return None
        first, last = quarter_means(series)
        if first <= 0 or not 0 <= last <= (1 - self.warning_loss) * first:
            return None
        if name == _ACCURACY and self._is_reward_kept(chart, series.steps(len(series))[0]):
            return None
        text = (
            f"{_noun(name)} fell over the run: its first quarter averages {first:.3g}, "
            f"its last {last:.3g}."
        )
        onset = self._half_way(series, first)
        severity: Severity = "warning" if self._is_certain_fall(chart, series) else "info"
        return Sighting(severity, text, (cite(chart, name, first),), find_onset=onset)

    def _is_certain_fall(self, chart: Chart, series: Series) -> bool:
        """Whether the fall is steep enough, or groups lose their variance as the reward falls."""
        if series.trend > -self.min_joint_trend:
            return False
        return series.trend <= -self.min_trend or rises_over_run(chart.series(_ZERO_VARIANCE))

    def _lost_part(self, chart: Chart, name: str) -> Sighting | None:
        """A lasting fall that is too small for an alarm: the best checkpoint is an earlier one."""
        series, best = chart.series(name), chart.series(name).highest
        if best is None or len(series) < self.lasting_readings or best.level <= 0:
            return None
        if series.level(RECENT) > (1 - self.noted_loss) * best.level:
            return None  # the usual case
        values = series.tail(2 * RECENT)
        now = max(statistics.median(values), statistics.fmean(values))
        lost = min(best.level, best.mean) - now
        if not lost / best.level - 2 * selection_bias(series) >= self.noted_loss:
            return None
        if not lost > self.noted_noises * reading_noise(series):
            return None
        if name == _ACCURACY and self._is_reward_kept(chart, best.step):
            return None
        text = (
            f"{_noun(name)} fell from {best.level:.3g} (best, around step {best.step}) to "
            f"{now:.3g}, and has not come back."
        )
        onset = self._half_way(series, best.level, after=best.step)
        return Sighting("info", text, (cite(chart, name, best.level),), _RETURN, onset)

    def _half_way(
        self, series: Series, before: float, *, after: int | None = None
    ) -> Callable[[], int]:
        """Finds the step since which the outcome is nearer to its current level than `before`."""
        middle = (before + series.level(RECENT)) / 2
        return partial(first_step_where, series, lambda outcome: outcome <= middle, after=after)

    def _is_reward_kept(self, chart: Chart, since: int) -> bool:
        """Whether the reward has not fallen with the accuracy: REW005 reports it."""
        reward = chart.series(_REWARD)
        then = level_at(reward, since)
        if then is not None and reward.level(RECENT) >= then:
            return True
        return reward_is_kept(chart)

    def _from_groups(self, chart: Chart, name: str) -> Sighting | None:
        outcome, incorrect = chart.series(name), chart.series(_ALL_INCORRECT)
        outcome_start, start = outcome.opening, incorrect.opening
        if outcome_start is None or start is None or not chart.is_fresh(_ALL_INCORRECT):
            return None
        now = incorrect.level(RECENT)
        if now < self.all_incorrect_share or now - start.level < self.all_incorrect_rise:
            return None
        level = outcome.level(RECENT)
        # An accuracy of 0 at the start has nothing to lose.
        is_lost = outcome_start.level > 0 and level <= (1 - self.warning_loss) * outcome_start.level
        if len(incorrect) < self.min_readings or not is_lost:
            return None
        text = (
            f"{_noun(name)} fell from {outcome_start.level:.3g} to {level:.3g} as all-incorrect "
            f"groups rose from {start.level:.0%} to {now:.0%}."
        )
        evidence = (
            cite(chart, _ALL_INCORRECT, start.level),
            cite(chart, name, outcome_start.level),
        )
        return Sighting("critical", text, evidence)


def _by_updates(chart: Chart, sighting: Sighting) -> Sighting:
    """The fall with the test of the reward first, if the updates were never large."""
    sizes = usual_updates(chart) if sighting.remedies is None else ()
    if not sizes:
        return sighting
    evidence = (*sighting.evidence, *cite_all(chart, *sizes))
    return replace(sighting, evidence=evidence, remedies=_TEST_FIRST)


def _noun(name: str) -> str:
    if name.startswith(PREFIX):
        return f"The component {component_name(name)}"
    return "Accuracy" if name == _ACCURACY else "Reward"


def _now(series: Series) -> str:
    return f"{series.level(RECENT):.3g}"
