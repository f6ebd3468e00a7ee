"""LEN002."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite, cite_all
from grpodoctor.rules.shared.health.heldout import (
    REWARD_HACKING,
    is_at_risen_best,
    low_heldout_accuracy,
)
from grpodoctor.rules.shared.health.run_health import (
    COLLAPSE_LOSS,
    RECENT,
    first_step_where,
    has_improved,
    is_solved,
    outcome_lost,
    outcome_metric,
    outcome_noun,
    reading_noise,
)
from grpodoctor.rules.shared.health.whole_run import falls_over_run
from grpodoctor.rules.shared.length_limit import lowered_limit
from grpodoctor.rules.shared.shapes.short_runs import USUAL, fall_in_short_run
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import BASELINE, OPENING, Series
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import HELDOUT

_TRUNCATED, _LONGEST = "length/truncated_rate", "length/max"
_VISIBLE_CHANGE = 0.05
"""Change since the start that the summary states; a smaller one is noise of the batches."""
_ALL = 0.995
"""Part of the truncated responses that is shown as all of them."""
_ROUNDING = 1e-6
"""Excess of the sum of two shares over 1 that is no rounding of the log."""
_MEDIAN_ERROR = math.sqrt(math.pi / 2 / BASELINE)
"""Standard error of the starting share, the median of so many readings, per noise of one."""


class TruncatedResponses(Rule):
    """The length limit truncates many responses.

    What it sees:
        The share of responses that end at the length limit instead of by themselves. It is a
        finding if it is high, or has grown several times since the start of the run, and critical
        if nearly all responses are truncated. It ends while the share falls over the whole run and
        the reward rises: the policy learns to answer within the limit.

        The finding is only a note if

        - the prompts are solved all the same, since the answer comes before the limit;
        - a tenth or more is truncated in all parts of the run, or a twentieth if the mean length
          is half of the limit;
        - the share grows, but is below a fifth, and held-out accuracy rose and is at its best;
        - the share is below .8, and the accuracy on the training prompts fell meanwhile: the
          prompts became too hard.

        It is a warning all the same, except where the prompts are solved, if three in ten are
        truncated and the complete ones fill 85 % of the limit on average: all of them lack room.

        Two other signs:

        - Truncated and correct responses together are more than all responses, so some truncated
          ones earned the reward. This is a note, or a warning if they are a tenth of all responses
          and held-out accuracy is low.
        - The longest response has the same length in every batch since a step, and at most three
          quarters of the earlier one: the limit was lowered. This is a warning if accuracy or
          reward fell at once, until it is back.

        In a run of fewer than 40 readings, the latest three count: a share far above its lowest
        level while accuracy or reward falls; see REW015.

    Why it matters:
        A response that is truncated before its answer is graded as incorrect even if its reasoning
        is right, so the reward depends on length instead of correctness. If nearly all responses
        are truncated, the policy can learn nothing else.

        A growing share means that responses grow without need, even while the reward still rises.
        In a public run the share climbed from .002 to .2 in 200 steps, and the held-out evaluation
        stopped improving on the way.

    Evidence it needs:
        `length/truncated_rate`. Optional: `length/mean`, `reward/truncated`, and `accuracy/train`
        or `reward/mean`.

    Remedies:
        Read some truncated responses first. If they reason soundly to the end, raise the limit if
        memory allows. If they loop or pad, punish length gradually before the limit, or leave
        truncated responses out of the loss. Leaving them out removes the pressure to be brief, so
        watch the share; it is not offered where hardly any response is complete.

        Where truncated responses earn the reward, the answer precedes the limit, or the verifier
        accepts what it cannot parse.

    When it is wrong:
        - A limit that is short on purpose, to teach brevity, truncates many responses at first.
        - Frameworks that know only one end token count a response that ends with another end token
          as truncated. Some count the longest response of each batch as truncated.
        - A reward for length is seen only once responses reach the limit: after 90 steps in small
          runs, and never if they stay below it.

    References:
        DAPO, arXiv 2503.14476, section 3.4; TRL pull request 7039 on several end tokens.
    """

    code: ClassVar[str] = "LEN002"
    name: ClassVar[str] = "truncated-responses"
    condition: ClassVar[Condition] = "truncation"
    summary: ClassVar[str] = "The length limit truncates many responses."
    inputs: ClassVar[tuple[Need, ...]] = (_TRUNCATED,)
    remedies: ClassVar[tuple[str, ...]] = (
        "longer-limit",
        "overlong-mask",
        "soft-overlong",
        "check-end-token",
    )
    references: ClassVar[tuple[str, ...]] = (
        "arXiv 2503.14476",
        "github.com/huggingface/trl/pull/7039",
    )
    persistence: ClassVar[int] = 2
    """The level is that of several readings, which one outlier does not move."""
    clearance: ClassVar[int] = RECENT

    info_share: float = 0.2
    """Share for `info`; healthy runs began at up to .3 and ended at .05."""
    warning_share: float = 0.5
    """Share for a warning: the reward depends as much on length as on the answer."""
    critical_share: float = 0.95
    """Share that is critical; a public run with 1.0 in every row learned nothing."""
    warning_rise: float = 0.15
    """Rise since the start that turns `info` into a warning, since the drift continues."""
    lowered_mean: float = 0.4
    """Mean length as a part of a lowered limit: otherwise it cuts only responses that loop."""
    lowered_loss: float = 0.15
    """Part of the outcome that is lost right after it."""
    lowered_errors: float = 3.0
    """Standard errors of the means of ten and of twenty readings that this loss must exceed."""
    early_rise: float = 0.1
    """Rise for a warning below `info_share`: a tenth of the batch is lost, and the share still
    climbs."""
    early_factor: float = 3.0
    """Multiple of the starting share in that case; hard prompts start high and stay there."""
    noise_factor: float = 2.0
    """Rise of the mean of twenty readings as a multiple of the noise of one, for the drift: four
    standard errors. With four responses per batch, single readings jump by a quarter."""
    early_noise_factor: float = 3.0
    """Rise of the share as a multiple of this noise, where it is not yet high: five standard errors
    of the difference of two medians of ten."""
    start_errors: float = 2.0
    """Standard errors by which the starting share may have been too low by chance, in that case:
    one truncated response of forty is consistent with three."""
    lasting_share: float = 0.1
    """Share for `info` if no ten readings of the run had less: a policy that learns to be brief
    would have fewer."""
    tight_share: float = 0.05
    """The same where the limit is not twice the mean length, and is reached in every batch."""
    tight_mean: float = 0.5
    """Mean length as a part of the limit from which it cuts ordinary responses: an even spread of
    lengths up to the limit has this mean."""
    squeezed_share: float = 0.3
    """Truncated share from which the complete responses are compared with the limit."""
    squeezed_mean: float = 0.85
    """Part of the limit that they fill on average: with an even spread of lengths it is half, and
    with lengths that decline towards the limit less."""
    at_limit: float = 0.9
    """Share of the latest twenty batches whose longest response has one length."""
    min_rewarded_share: float = 0.02
    """Truncated share from which its sum with the outcome is examined."""
    min_rewarded_readings: int = 5
    """Readings of the latest twenty in which the sum exceeds 1."""
    grave_rewarded: float = 0.1
    """Share of all responses that are truncated and rewarded from which held-out accuracy that is
    far below that of the training is their effect."""
    min_lasting_readings: int = 40
    """Readings before this lasting share is judged."""
    grave_share: float = 0.8
    """Share that needs fewer readings: no healthy run begins there."""
    min_endless_readings: int = 20
    """Readings without a response that ended from which a missing end token is as likely as a low
    limit: of thousands of responses, some are short."""
    min_endless_length: float = 512
    """Tokens of the limit in that case; a few hundred are too few for any worked solution."""
    min_grave_readings: int = 3
    """Minimum readings for a share above `grave_share`."""
    min_readings: int = 5
    """Minimum readings for any other finding."""

    def examine(self, chart: Chart) -> RuleResult:
        """Take the recent share and its rise since the start, or the latest readings of both."""
        series = chart.series(_TRUNCATED)
        found = self._by_levels(chart, series)
        if isinstance(found, Sighting) and found.severity != "info":
            return found
        lowered = self._lowered(chart)
        if lowered is not None:
            return lowered
        return self._with_falling_outcome(chart, series) or self._rewarded(chart, series) or found

    def _lowered(self, chart: Chart) -> Sighting | None:
        """A longest response of one length in every batch since a step, and longer ones before.

        The truncated share may not show it, where it counts those of another limit.
        """
        limit, at = lowered_limit(chart.series(_LONGEST))
        if not limit:
            return None  # the usual case
        name = outcome_metric(chart)
        if name is None:
            return None
        mean = chart.series("length/mean")
        if not len(mean) or not mean.level(RECENT) >= self.lowered_mean * limit:
            return None
        step = chart.series(_LONGEST).steps(at)[0]
        outcomes = list(chart.series(name))
        before = [value for each, value in outcomes if each < step][-2 * RECENT :]
        since = [value for each, value in outcomes if each >= step]
        if len(before) < 2 * RECENT or not since:
            return None
        then, now = statistics.fmean(before), statistics.fmean(since[-2 * RECENT :])
        fell = statistics.fmean(since[:RECENT])
        error = reading_noise(chart.series(name)) * math.sqrt(3 / (2 * RECENT))
        # A reward may be negative, and one near zero loses a part of itself by chance.
        if not then - fell > max(self.lowered_loss * abs(then), self.lowered_errors * error):
            return None
        text = (
            f"No response exceeds {limit:g} tokens since step {step}, and {outcome_noun(chart)} "
            f"fell from {then:.2g} to {fell:.2g}: a lower limit."
        )
        severity: Severity = "warning" if then - now > error else "info"
        evidence = (cite(chart, name, then), *cite_all(chart, _LONGEST, _TRUNCATED))
        return Sighting(severity, text, evidence, ("longer-limit",), partial(int, step))

    def _rewarded(self, chart: Chart, series: Series) -> Sighting | None:
        """Truncated responses that earn as much as correct ones, as the sum of two shares shows."""
        if not series.level(RECENT) >= self.min_rewarded_share:
            return None
        name = outcome_metric(chart)
        if name is None:
            return None
        latest = [each.tail(2 * RECENT) for each in (series, chart.series(name))]
        if sum(map(max, latest)) <= 1:
            return None  # the usual case, before steps are compared
        outcomes = dict(chart.series(name))
        pairs = [(share, outcomes[step]) for step, share in series if step in outcomes]
        pairs = pairs[-2 * RECENT :]
        excesses = [share + outcome - 1 for share, outcome in pairs]
        if sum(each > _ROUNDING for each in excesses) < self.min_rewarded_readings:
            return None
        if not all(0 <= outcome <= 1 for outcome in outcomes.values()):
            return None
        share = statistics.fmean(share for share, _ in pairs)
        paid = statistics.fmean(max(each, 0.0) for each in excesses)
        part = "all" if paid >= _ALL * share else f"at least {paid / share:.0%}"
        text = (
            f"{share:.0%} of responses are truncated, and {part} of these earned as much as "
            "correct ones."
        )
        evidence = cite_all(chart, _TRUNCATED, name, "length/mean")
        low = low_heldout_accuracy(chart)
        if low is None or not low.has_risen or paid < self.grave_rewarded:
            return Sighting("info", text, evidence, ("recheck-reward", "longer-limit"))
        return Sighting("warning", text, evidence, ("recheck-reward",), condition=REWARD_HACKING)

    def _with_falling_outcome(self, chart: Chart, series: Series) -> Sighting | None:
        """A share that rises in the latest readings of a short run while the outcome falls."""
        if not USUAL.min_readings <= len(series) < USUAL.max_readings:
            return None
        name = outcome_metric(chart)
        if name is None:
            return None
        values = series.tail(len(series))
        before, latest = values[:-OPENING], values[-OPENING:]
        starts = range(len(before) - OPENING + 1)
        lowest = min(statistics.fmean(before[i : i + OPENING]) for i in starts)
        if not min(latest) - lowest > self.warning_rise:
            return None
        fall = fall_in_short_run(chart.series(name))
        if fall is None:
            return None
        text = (
            f"Truncated responses rose from {lowest:.0%} to {latest[-1]:.0%} while "
            f"{outcome_noun(chart)} fell from {fall.best:.3g} to {fall.level:.3g}."
        )
        evidence = (cite(chart, _TRUNCATED, lowest), cite(chart, name, fall.best))
        middle = lowest + self.warning_rise / 2
        onset = partial(first_step_where, series, lambda value: value >= middle)
        return Sighting("warning", text, evidence, find_onset=onset)

    def _by_levels(self, chart: Chart, series: Series) -> Sighting | None:
        if series.level(RECENT) < self.early_rise / 2 or len(series) < self.min_grave_readings:
            return None
        if len(series) < self.min_readings and min(series.tail(RECENT)) < self.grave_share:
            return None
        share = series.level(RECENT)
        if share == 1:  # at a share of .7, most batches of four or less have only truncated ones
            share = series.mean(RECENT)
        if not share >= self.info_share:
            return self._early_rise(chart, series) or self._lasting_share(chart, series)
        # The policy learns to answer within the limit.
        is_outgrown = share < self.grave_share and falls_over_run(series) and has_improved(chart)
        start = series.start
        rise = share - start.level if start else 0.0
        change = _change_text(start.level, share) if start else ""
        steps = in_steps(series, RECENT)
        evidence = cite_all(chart, _TRUNCATED, "length/mean", "reward/truncated")
        onset = partial(first_step_where, series, lambda value: value >= self.info_share)
        is_of_prompts = self._is_of_prompts(chart, share)
        is_mild = is_outgrown or is_solved(chart) or is_of_prompts
        severity = "info" if is_mild else self._severity(series, share, rise)
        where = " by the length limit"
        filled = self._filled_by_the_others(chart, share)
        if severity == "info" and filled is not None and not is_solved(chart):
            severity = "warning"
            where = f"; the others fill {filled:.0%} of the limit"
        text = f"{share:.0%} of responses are truncated{where} {steps}{change}."
        # Masking would leave hardly any response in the loss.
        remedies = ("longer-limit", "soft-overlong") if share >= self.grave_share else None
        if self._none_ended(chart, series):
            text = f"No response ended by itself in {len(series)} readings: "
            if outcome_has_risen(chart):
                text += "the lengths count padding, or answers precede a missing end token."
            else:
                text += "the end token is missing, or the limit is far too low."
            remedies = ("check-end-token", "longer-limit")
        return Sighting(severity, text, evidence, remedies, onset, ends_severer=is_of_prompts)

    def _filled_by_the_others(self, chart: Chart, share: float) -> float | None:
        """The part of the limit that complete responses have on average, if nearly all of it.

        Then the limit decides the length of all responses, and most of them lack room. A policy
        that learned to be brief would leave some.
        """
        limit = self._limit(chart)
        if limit is None or not self.squeezed_share <= share < 1:
            return None
        mean = chart.series("length/mean").mean(2 * RECENT) / limit
        cut = chart.series(_TRUNCATED).mean(2 * RECENT)
        filled = (mean - cut) / (1 - cut) if cut < 1 else 0.0
        return filled if filled >= self.squeezed_mean else None

    def _is_of_prompts(self, chart: Chart, share: float) -> bool:
        """Whether the training prompts became too hard for a policy whose evaluations rise.

        Its outcome fell and its responses are cut, and no limit would help.
        """
        if not share < self.grave_share or not _does_no_harm(chart):
            return False
        return outcome_lost(chart) >= COLLAPSE_LOSS

    def _none_ended(self, chart: Chart, series: Series) -> bool:
        """Whether the log has no response that ended, although the limit leaves room for one."""
        if len(series) < self.min_endless_readings or not series.window_min() >= 1:
            return False
        levels = (series.opening, series.lowest)
        if any(level is not None and level.level < 1 for level in levels):
            return False
        return chart.series("length/mean").level(RECENT) >= self.min_endless_length

    def _early_rise(self, chart: Chart, series: Series) -> Sighting | None:
        """A share that is not yet high, but has grown several times and still grows."""
        share, start = series.level(RECENT), series.start
        if start is None:
            return None
        noise = reading_noise(series)
        highest_start = start.level + self.start_errors * noise * _MEDIAN_ERROR
        if not share >= self.early_factor * highest_start:
            return None
        if not share - start.level >= max(self.early_rise, self.early_noise_factor * noise):
            return None
        text = (
            f"Truncated responses rose from {start.level:.1%} to {share:.1%} of all responses "
            f"{in_steps(series, RECENT)}."
        )
        evidence = cite_all(chart, _TRUNCATED, "length/mean", "reward/truncated")
        middle = start.level + self.early_rise / 2
        onset = partial(first_step_where, series, lambda value: value >= middle)
        is_harmless = _does_no_harm(chart)
        severity: Severity = "info" if is_harmless else "warning"
        is_refuted = is_harmless and share <= series.mean(2 * RECENT)
        return Sighting(severity, text, evidence, find_onset=onset, ends_severer=is_refuted)

    def _lasting_share(self, chart: Chart, series: Series) -> Sighting | None:
        """A tenth of the responses or more that is always cut, whatever the run learns."""
        lowest, values = series.lowest, series.tail(2 * RECENT)
        if len(series) < self.min_lasting_readings or lowest is None:
            return None
        least = min(lowest.level, series.level(RECENT), statistics.fmean(values))
        if not least >= self.tight_share:
            return None
        if not least >= self.lasting_share and not self._is_tight(chart):
            return None
        text = (
            f"{statistics.fmean(values):.0%} of responses are truncated by the length limit, and "
            f"never less than {least:.0%} in {series.readings} readings."
        )
        evidence = cite_all(chart, _TRUNCATED, "length/mean", "reward/truncated")
        first = series.first_step
        return Sighting("info", text, evidence, ("longer-limit",), lambda: first)

    def _is_tight(self, chart: Chart) -> bool:
        """Whether the longest response of nearly all batches has one length, not twice the mean.

        That length is the limit, and it cuts ordinary responses and not only those that loop.
        """
        limit = self._limit(chart)
        mean = chart.series("length/mean").mean(2 * RECENT)
        return limit is not None and mean >= self.tight_mean * limit

    def _limit(self, chart: Chart) -> float | None:
        """The length of the longest response of nearly all batches."""
        longest = chart.series(_LONGEST).tail(2 * RECENT)
        if len(longest) < 2 * RECENT:
            return None
        limit = max(longest)
        at_limit = sum(each == limit for each in longest)
        return limit if limit > 0 and at_limit >= self.at_limit * len(longest) else None

    def _severity(self, series: Series, share: float, rise: float) -> Severity:
        if share >= self.critical_share:
            return "critical"
        if share >= self.warning_share:
            return "warning"
        lasting = rise + series.mean(2 * RECENT) - share
        is_certain = lasting >= self.noise_factor * reading_noise(series)
        return "warning" if rise >= self.warning_rise and is_certain else "info"


def _does_no_harm(chart: Chart) -> bool:
    """Whether the held-out outcome rose and is at its best; training prompts may become harder."""
    return any(is_at_risen_best(chart.series(name)) for name in HELDOUT)


def _change_text(start: float, share: float) -> str:
    """The starting share, if it differs visibly from the current one."""
    if abs(share - start) < _VISIBLE_CHANGE:
        return ""
    return f", {'up' if share > start else 'down'} from {start:.0%} at the start"
