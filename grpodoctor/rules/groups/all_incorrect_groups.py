"""GRP002."""

from __future__ import annotations

import statistics
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import (
    NOT_LOGGED,
    UNDECIDED,
    Need,
    Rule,
    RuleResult,
    Severity,
    Sighting,
    cite_all,
)
from grpodoctor.rules.shared.distillation import DISTILLED, is_distilled
from grpodoctor.rules.shared.groups.alike_groups import has_alike_groups
from grpodoctor.rules.shared.groups.zero_variance import zero_variance_cause
from grpodoctor.rules.shared.health.component_roles import success_component
from grpodoctor.rules.shared.health.run_health import (
    FAILED_OUTCOME,
    FLAT_BATCHES,
    RECENT,
    ZERO_VARIANCE_METRICS,
    current_metric,
    first_step_where,
    fresh_metric,
    has_critic,
    has_improved,
    has_lost_outcome,
    outcome_metric,
    outcome_noun,
    typical_share,
    zero_variance_metric,
)
from grpodoctor.rules.shared.health.success_measures import may_be_success_share
from grpodoctor.rules.shared.outcome.flat_outcome import outcome_rose
from grpodoctor.rules.shared.outcome.kept_policy import is_at_reference
from grpodoctor.rules.shared.shapes.windows import in_steps, in_typical_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.inferred_groups import INFERRED_ALL_INCORRECT, INFERRED_ZERO_VARIANCE
from grpodoctor.runs.series import BASELINE, WINDOW, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.plain_names import PLAIN_NAMES
from grpodoctor.vocabulary.values import NotApplicable

_BOUNDS = (INFERRED_ALL_INCORRECT, INFERRED_ZERO_VARIANCE)
_ROUNDED_TO_ALL = 0.995
_RATES = ("groups/all_incorrect_rate", "groups/zero_variance_rate", *_BOUNDS)
_ALL_CORRECT = "groups/all_correct_rate"
_ACCURACY = "accuracy/train"
_REWARD = "reward/mean"
_GRADIENT = "optimizer/grad_norm"
_EVALUATIONS = 3


class AllIncorrectGroups(Rule):
    """Many groups are all-incorrect, so they contribute no gradient.

    What it sees:
        A large share of groups without a correct response, for long enough and without a rise of
        accuracy or reward.

        - If all groups are all-incorrect for twenty readings, nothing is being learned, and the
          finding is critical.
        - If few groups were all-incorrect at the start, the policy got worse; the prompts are not
          too hard. The finding then has other remedies, and is `info` alongside REW002. This does
          not hold if the KL to the reference shows that the policy has hardly changed.
        - If the share of all-correct groups rose as well, nothing got worse: the responses to one
          prompt are alike, and the finding is `info`.
        - If a quarter of the groups or more stays all-incorrect in a run that learns, those prompts
          are never solved, and the finding is `info`. It also is if the training outcome stays the
          same share of a held-out outcome that rises and comes near 1.

        If the log does not count groups, the rule uses what the log implies: pass@k, equal rewards
        in a batch, or a success rate near zero. At a success rate p, at most G x p of the groups of
        G responses contain a success. A reward that scatters less than such a share can is the mean
        of many small rewards, and is not used. If the reward differs between batches without a
        correct response, groups vary although none succeeds: the finding then is a warning that
        states how rare success is.

    Why it matters:
        Such groups have advantages of zero. When all groups are like that, the gradient is zero or
        comes from the KL penalty alone, and the run only burns compute.

    Evidence it needs:
        `groups/all_incorrect_rate`; or `groups/zero_variance_rate` with `accuracy/train`, or with a
        reward that is exactly zero; or `accuracy/train` or a reward in [0, 1] that is nearly zero.

    Remedies:
        First check that the reward function accepts a correct answer at all: the parser is the most
        frequent cause. Then easier prompts, a warm start, or dynamic sampling if part of the
        prompts is solvable.

    When it is wrong:
        A hard task can start like this and recover, so a share below all groups is reported only
        after twenty readings without progress. Unsolvable prompts in the mix keep the share high
        for the whole run; dynamic sampling is the right remedy for those. In a run that collapses,
        the share rises about twenty steps after the cause. Held-out prompts may be easier than
        those of the training, and rise in the same ratio by chance. With a critic as the baseline,
        such groups do contribute gradient. The rule then reports only the case that all groups are
        all-incorrect, since there is no correct response to learn from.

    References:
        DAPO, arXiv 2503.14476, section 3.2.
    """

    code: ClassVar[str] = "GRP002"
    name: ClassVar[str] = "all-incorrect-groups"
    condition: ClassVar[Condition] = "zero-rewards"
    former_names: ClassVar[tuple[str, ...]] = ("zero-variance-groups-too-hard",)
    summary: ClassVar[str] = "Many groups are all-incorrect, so they contribute no gradient."
    inputs: ClassVar[tuple[Need, ...]] = ((*_RATES, _ACCURACY, _REWARD),)
    remedies: ClassVar[tuple[str, ...]] = ("recheck-reward", "easier-prompts", "dynamic-sampling")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 20
    judges_levels: ClassVar[bool] = True

    all_share: float = 0.98
    """Share at which no signal is left except by accident. A public run that learned nothing had a
    median of 1.0 and a minimum of .94."""
    starved_share: float = 0.95
    """Share that is critical if the outcome has not risen: a success rate of .4 % leaves at most
    .03 of the groups of eight with a success."""
    warning_share: float = 0.5
    """Share for a warning if it lasts. A healthy run that began at .75 was far below after thirty
    steps."""
    info_share: float = 0.25
    """Share for `info` if it lasts: dynamic sampling then saves a quarter of the compute. In a
    small run with 30% unsolvable prompts (share .33) it raised accuracy from .60 to .70."""
    kept_share: float = 0.9
    """Part of the starting share that is left where the share does not fall although the outcome
    rises. A policy that gets better at all its prompts leaves fewer of them unsolved."""
    min_worsening: float = 0.2
    """Rise since the first readings that equally hard prompts do not explain: the share of sixteen
    groups scatters by .1."""
    noise_factor: float = 2.0
    """The same rise as a multiple of the noise of one reading, for batches of few groups: three
    standard errors of the level of the first three readings."""
    nearly_solved: float = 0.8
    """Held-out level at which the policy can solve prompts of this kind: at most .2 of them fail,
    half of the share of training responses (.4) that must fail for the finding."""
    same_part: float = 0.12
    """Difference of the ratio of training and held-out outcome, at the start and now. Where all
    prompts can be learned, it rises toward 1. It is two and a half standard errors of that
    difference at a ratio of .6, for evaluations of 64 prompts at .6 and .9, of which three count,
    and batches of 128 responses (binomial errors)."""
    min_heldout_rise: float = 0.25
    """Part of the held-out level that was gained since the start. Two outcomes that hardly move
    keep their ratio whatever the labels: the held-out prompts may be easier ones."""
    min_evaluations: int = 6
    """Held-out evaluations: three at the start, and the latest three."""
    max_success: float = 0.01
    """Share of successful responses at which groups are starved: with eight responses per prompt,
    at most .08 of the groups contain a success."""
    onset_factor: float = 2.0
    """Multiple of `max_success` that dates the onset: a success rate that scatters around it is one
    lasting condition, and no series of short ones."""
    rare_success: float = 0.03
    """Share of correct responses, over all readings in the window, that is too rare to learn from
    where the reward varies for other reasons: a quarter of the groups of eight contain one."""
    min_readings: int = 5
    """Minimum readings for any finding."""
    min_dead_readings: int = 4
    """The same if reward and gradient have been exactly 0 in every reading: the run has not learned
    from a single response yet, which no reading after that can change."""
    min_unrewarded: int = 10
    """Readings of exactly 0 that are a warning where neither groups nor the gradient are logged."""
    max_chance: float = 1e-4
    """Probability of readings of 0 in a row, at the share of them before, above which they show
    nothing: of a hundred stretches, one in a hundred runs has such a one."""
    patience: int = 20
    """Readings before a share below `all_share` counts, and before all groups are critical."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share of all-incorrect groups, or what the success rate implies."""
        if is_distilled(chart):
            return DISTILLED
        name = fresh_metric(chart, _RATES)
        logged = chart.reading(_RATES[0])
        if isinstance(logged, NotApplicable):
            return logged
        found = self._by_rate_or_success(chart, name)
        return found if isinstance(found, Sighting) else self._below_heldout(chart) or found

    def _by_rate_or_success(self, chart: Chart, name: str | None) -> RuleResult:
        if name is None:
            return self._by_success(chart)
        result = self._by_rate(chart, name)
        if result is None and name in _BOUNDS:
            by_success = self._by_success(chart)
            return UNDECIDED if by_success is NOT_LOGGED else by_success
        return result

    def _by_rate(self, chart: Chart, name: str) -> Sighting | None:
        series = chart.series(name)
        needed = self.min_dead_readings if self._is_dead(chart) else self.min_readings
        if series.last < self.info_share / 2 or len(series) < needed:
            return None
        share = typical_share(series, self.patience)
        if name in ZERO_VARIANCE_METRICS:
            share = self._incorrect_part(chart, share)
        severity = self._severity(chart, share, is_long=len(series) >= self.patience)
        if severity is None:
            return self._never_solved(chart, name, share)
        if name in ZERO_VARIANCE_METRICS and zero_variance_cause(chart) != "all-incorrect":
            return None
        if name == INFERRED_ZERO_VARIANCE and share < FLAT_BATCHES:
            return None  # with one prompt per batch, half of the batches may be equal by chance
        return self._sighting(chart, name, share, severity)

    def _never_solved(self, chart: Chart, name: str, share: float) -> Sighting | None:
        """A share that lasts although the policy learns: those prompts are never solved."""
        series = chart.series(name)
        if name != _RATES[0] or share < self.info_share or has_critic(chart):
            return None
        if len(series) < 2 * self.patience or not outcome_rose(chart) or series.start is None:
            return None
        if min(share, series.level(2 * self.patience)) < self.kept_share * series.start.level:
            return None
        text = (
            f"{share:.0%} of groups stay all-incorrect {in_typical_steps(series, self.patience)} "
            f"although {outcome_noun(chart)} rose: "
            "their prompts are never solved."
        )
        onset = partial(self._onset, chart, name)
        return Sighting(
            "info", text, cite_all(chart, name, outcome_metric(chart)), find_onset=onset
        )

    def _below_heldout(self, chart: Chart) -> Sighting | None:
        """A training outcome that stays the same part of a held-out one that is nearly solved.

        A policy that solves nearly all prompts of one kind fails at the others for another reason:
        wrong labels, or a verifier that cannot read them.
        """
        heldout = HELDOUT[0] if len(chart.series(HELDOUT[0])) else HELDOUT[1]
        evaluated = chart.series(heldout)
        if len(evaluated) < self.min_evaluations:
            return None
        level = evaluated.level(_EVALUATIONS)
        if not self.nearly_solved <= level <= 1:
            return None  # the usual case
        earlier = statistics.fmean(evaluated.head(_EVALUATIONS))
        outcome = outcome_metric(chart)
        if earlier > (1 - self.min_heldout_rise) * level or outcome is None or has_critic(chart):
            return None
        series = chart.series(outcome)
        if len(series) < 2 * self.patience:
            return None
        now = series.mean(self.patience)
        if not now < (1 - self.info_share) * level or not outcome_rose(chart):
            return None
        if not series.is_within(0, 1):
            return None
        started = statistics.fmean(series.head(BASELINE))
        if not earlier > 0 or not abs(now / level - started / earlier) <= self.same_part:
            return None
        text = (
            f"{outcome_noun(chart).capitalize()} is {now:.2g} where {PLAIN_NAMES[heldout]} is "
            f"{level:.2g}, a constant ratio: some prompts may never be solved."
        )
        first = series.first_step
        evidence = cite_all(chart, outcome, heldout)
        return Sighting("info", text, evidence, ("recheck-reward",), lambda: first)

    def _incorrect_part(self, chart: Chart, share: float) -> float:
        """The part of zero-variance groups that is all-incorrect, by the accuracy of all groups.

        Groups with variance are taken to be correct to one half on average; the accuracy that they
        leave unexplained is that of all-correct groups.
        """
        accuracy = chart.series(_ACCURACY)
        if not len(accuracy):
            return share
        all_correct = accuracy.level(self.patience) - (1 - share) / 2
        return share - min(max(all_correct, 0.0), share)

    def _is_dead(self, chart: Chart) -> bool:
        """Whether reward and gradient have been exactly 0 since the start of the run."""
        reward, gradient = chart.series(_REWARD), chart.series(_GRADIENT)
        if not (len(reward) and len(gradient)) or reward.last or gradient.last:
            return False
        return not any(reward.tail(WINDOW)) and not any(gradient.tail(WINDOW))

    def _sighting(self, chart: Chart, name: str, share: float, severity: Severity) -> Sighting:
        series = chart.series(name)
        evidence = cite_all(chart, name, _success_metric(chart))
        onset = partial(self._onset, chart, name)
        zero_variance = chart.series(zero_variance_metric(chart) or _RATES[1])
        groups = f"{share:.0%} of groups are all-incorrect"
        steps = in_typical_steps(series, self.patience)
        if len(zero_variance) and has_alike_groups(chart, typical_share(zero_variance, RECENT)):
            text = f"{groups} {steps}, and nearly all others all-correct."
            return Sighting("info", text, evidence, find_onset=onset)  # GRP004 raises the alarm
        opening, has_worsened = series.opening, self._has_worsened(series, share)
        if opening and has_worsened and self._agree_more(chart, share - opening.level):
            text = f"{groups} {steps}, and more all-correct than at first."
            return Sighting("info", text, evidence, find_onset=onset)  # nothing got worse
        if opening and has_worsened and not is_at_reference(chart):
            text = (
                f"All-incorrect groups rose from {opening.level:.0%} to {share:.0%} {steps}, "
                "so the policy got worse."
            )
            if share < self.all_share and has_lost_outcome(chart):
                severity = "info"  # REW002 or REW005 raises the alarm
            middle = (opening.level + share) / 2
            onset = partial(first_step_where, series, lambda value: value >= middle)
            remedies = ("lower-learning-rate", "fewer-updates")
            return Sighting(severity, text, evidence, remedies, onset)
        is_counted = share >= _ROUNDED_TO_ALL or name == _RATES[0]
        how = "" if is_counted else "At least " if name in _BOUNDS else "About "
        text = f"{how}{groups} {steps}, so they contribute no gradient."
        return Sighting(severity, text, evidence, find_onset=onset)

    def _agree_more(self, chart: Chart, rise: float) -> bool:
        """Whether all-correct groups have become more as well: responses to a prompt are alike.

        A policy that gets worse has fewer of them. One without entropy has more of both kinds.
        """
        right = chart.series(_ALL_CORRECT)
        opening = right.opening
        return opening is not None and right.level(self.patience) - opening.level >= rise / 2

    def _onset(self, chart: Chart, name: str) -> int:
        """The step since which many groups are equal and, if only that is known, for failure."""
        began = first_step_where(chart.series(name), lambda value: value >= self.info_share)
        outcome = _success_metric(chart)
        if name not in ZERO_VARIANCE_METRICS or outcome is None:
            return began
        failed = first_step_where(chart.series(outcome), lambda value: value < FAILED_OUTCOME)
        return max(began, failed)

    def _has_worsened(self, series: Series, share: float) -> bool:
        """Whether the share rose since the first three readings by more than their noise."""
        opening = series.opening
        if opening is None:
            return False
        # The level of the first three readings scatters by .7 of the noise of one reading.
        rise = share - opening.level
        return rise >= max(self.min_worsening, self.noise_factor * series.noise(WINDOW))

    def _severity(self, chart: Chart, share: float, *, is_long: bool) -> Severity | None:
        if share >= self.all_share:
            return "critical" if is_long else "warning"
        if has_critic(chart):
            return None
        if not (is_long and share >= self.info_share) or has_improved(chart):
            return None
        if share >= self.starved_share:
            return "critical"
        return "warning" if share >= self.warning_share else "info"

    def _by_success(self, chart: Chart) -> RuleResult:
        """Starvation where groups are not logged: next to no response is rewarded."""
        name = current_metric(chart, (_ACCURACY, _REWARD))
        series = chart.series(name)
        if name == _ACCURACY and self._rewards_more_than_success(chart):
            return self._rare_success(chart, series)
        if len(series) < self.min_unrewarded:
            return NOT_LOGGED
        if series.last > self.max_success:
            return UNDECIDED
        if not series.is_within(0, 1):
            return NOT_LOGGED
        if name == _REWARD and not may_be_success_share(chart, series):
            return NOT_LOGGED
        recent = series.tail(self.patience)
        is_long = len(recent) >= self.patience
        if not is_long and any(recent):
            return NOT_LOGGED
        success = statistics.fmean(recent)
        if not success <= self.max_success or has_improved(chart) or has_lost_outcome(chart):
            return UNDECIDED
        if self._fails_by_chance(series):
            return UNDECIDED
        evidence = cite_all(chart, name, "reward/max", "groups/reward_std")
        begun = self.onset_factor * self.max_success
        onset = partial(first_step_where, series, lambda value: value <= begun)
        noun = "correct" if name == _ACCURACY else "rewarded"
        if not any(recent):
            text = f"No response was {noun} in {len(recent)} readings, so no group varies."
            severity: Severity = "critical" if is_long else "warning"
            return Sighting(severity, text, evidence, find_onset=onset)
        text = (
            f"Only {success:.1%} of responses are {noun} {in_steps(series, self.patience)}: "
            "nearly all groups are all-incorrect."
        )
        return Sighting("warning", text, evidence, find_onset=onset)

    def _fails_by_chance(self, series: Series) -> bool:
        """Whether as many readings of 0 in a row are likely, as in a log of single episodes."""
        earlier = series.tail(WINDOW)[: -self.patience]
        if len(earlier) < self.patience or statistics.fmean(earlier) <= self.max_success:
            return False
        failed = sum(value <= self.max_success for value in earlier) / len(earlier)
        return failed**self.patience > self.max_chance

    def _rewards_more_than_success(self, chart: Chart) -> bool:
        """Whether batches without a correct response differ in reward, as their groups then may."""
        failed = {step for step, value in chart.series(_ACCURACY) if value == 0}
        rewards = {value for step, value in chart.series(_REWARD) if step in failed}
        return len(rewards) > max(1, len(failed) // 2)

    def _rare_success(self, chart: Chart, accuracy: Series) -> RuleResult:
        """Next to no correct response, in groups whose reward varies for other reasons."""
        values = accuracy.tail(WINDOW)
        if len(values) < self.patience or not accuracy.is_within(0, 1):
            return NOT_LOGGED
        success = statistics.fmean(values)
        if success > self.rare_success or outcome_rose(chart) or has_lost_outcome(chart):
            return NOT_LOGGED
        # The readings that the sentence counts are the window of the share.
        share = f"Only {success:.1%} of responses are" if success else "No response was"
        text = f"{share} correct in {len(values)} readings; the reward varies for other reasons."
        onset = partial(first_step_where, accuracy, lambda value: value <= self.rare_success)
        return Sighting("warning", text, cite_all(chart, _ACCURACY, _REWARD), find_onset=onset)


def _success_metric(chart: Chart) -> str | None:
    """What shows that groups fail: the accuracy, else the component of success, else the reward."""
    outcome = outcome_metric(chart)
    return outcome if outcome == _ACCURACY else success_component(chart) or outcome
