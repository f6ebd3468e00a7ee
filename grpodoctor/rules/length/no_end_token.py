"""LEN007."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import RECENT
from grpodoctor.rules.shared.shapes.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_MEAN, _MAX, _MIN = "length/mean", "length/max", "length/min"
_TRUNCATED = "length/truncated_rate"
_TERMINATED = "length/terminated_mean"
_END_TOKENS = "length/end_tokens"
_ACCURACY, _LOOPS = "accuracy/train", "text/repetition_rate"


class NoEndToken(Rule):
    """No response ends: the end token is never produced, or not recognized.

    What it sees:
        One of three patterns. Every response of the latest readings has the same length, so nothing
        ended by itself. Or the log counts all responses as truncated although their lengths differ,
        so they do end, by a token that the trainer does not recognize. Or the log counts the end
        tokens of each batch, as TRL's PPO does, and there was none in the whole run.

        Responses of one length also come from a limit that is too low. The finding is a warning
        only if the limit is long enough: some truncated responses are correct, or most of them
        repeat themselves. It is `info` if neither is known, if responses ended earlier in the run,
        or while reward or accuracy rise: LEN002, LEN003 or LEN006 then name the problem.

    Why it matters:
        A response without its end is graded without its answer and, if truncated responses are
        masked, is not in the loss at all. A limit that is too short cuts some responses. A missing
        end token cuts all of them, and then a longer limit does not help.

    Evidence it needs:
        `length/mean`, and `length/max` or `length/truncated_rate`; or `length/end_tokens`.
        Optional: `length/min`, `accuracy/train`, `text/repetition_rate`.

    Remedies:
        Compare the tokenizer's end token with the chat template's and the engine's stop tokens.
        Check that the loss mask contains the end token.

    When it is wrong:
        A grader that gives credit to unfinished answers makes a low limit look long enough. The
        finding states which pattern it saw. To decide, generate one response with a much longer
        limit.

    References:
        TRL pull request 7039 (several end tokens, false truncation of .97); RAGEN issue 59 (end
        token masked out of the loss).
    """

    code: ClassVar[str] = "LEN007"
    name: ClassVar[str] = "no-end-token"
    condition: ClassVar[Condition] = "no-end-token"
    summary: ClassVar[str] = "No response ends by itself: the end token is missing or unrecognized."
    inputs: ClassVar[tuple[Need, ...]] = (
        (_MEAN, _END_TOKENS),
        (_MAX, _TRUNCATED, _END_TOKENS),
    )
    remedies: ClassVar[tuple[str, ...]] = ("check-end-token", "longer-limit")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/pull/7039",
        "github.com/mll-lab-nu/RAGEN/issues/59",
    )

    min_readings: int = 5
    """Readings in which no response ended. With a share of 1 % that end, 128 responses have none
    with a probability of .28, and five such batches in a row of .002."""
    min_counted_readings: int = 20
    """Readings without any end token. If a tenth of the responses ended, batches of four would
    show none in so many readings with a probability of .0002."""
    certain_readings: int = 10
    """Readings without a rise of any outcome that make the finding critical."""
    all_truncated: float = 0.999
    """Share of truncated responses that counts as all of them."""
    same_length: float = 0.999
    """Mean length divided by the longest that counts as one length for all."""
    differing_length: float = 0.9
    """Mean length divided by the longest, below which lengths clearly differ."""
    min_accuracy: float = 0.05
    """Accuracy of truncated responses that shows that answers fit into the limit. Lucky guesses of
    a number or of one of many choices stay below."""
    looping_share: float = 0.5
    """Share of responses that repeat themselves from which a longer limit only adds repeats."""
    min_length: float = 32
    """Tokens below which responses of one length are ordinary, such as sums or labels."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for batches of one length, or for truncated responses of different lengths."""
        if chart.is_fresh(_END_TOKENS):
            return self._judge_counted_ends(chart)
        mean, longest = chart.series(_MEAN), chart.series(_MAX)
        if len(mean) < self.min_readings or mean.last < self.min_length:
            return None
        if chart.is_fresh(_TRUNCATED) and chart.series(_TRUNCATED).last < self.all_truncated:
            return None
        if not chart.is_fresh(_MAX):
            return None  # LEN002 reports the truncation, LEN003 a length near the limit
        if mean.last >= self.same_length * longest.last:
            return self._judge_one_length(chart)
        if chart.is_fresh(_TRUNCATED) and mean.last < self.differing_length * longest.last:
            return self._judge_different_lengths(chart)
        return None

    def _judge_counted_ends(self, chart: Chart) -> Sighting | None:
        series = chart.series(_END_TOKENS)
        if series.highest is not None and series.highest.level > 0:
            return None
        if len(series) < self.min_counted_readings or any(value > 0 for _, value in series):
            return None
        text = f"The responses of all {len(series)} readings contain no end token."
        severity: Severity = "info" if outcome_has_risen(chart) else "critical"
        return self._sighting(chart, severity, text, len(series), self.remedies[::-1])

    def _judge_one_length(self, chart: Chart) -> Sighting | None:
        limit = chart.series(_MAX).last
        count = _trailing(chart.series(_MEAN), partial(_is_at_least, self.same_length * limit))
        if count < self.min_readings:
            return None
        text = f"No response of the last {count} readings ends: all are {limit:.0f} tokens long."
        if self._has_ended(chart, limit) or not self._is_ample(chart):
            return self._sighting(chart, "info", text, count, ("longer-limit", "check-end-token"))
        severity: Severity = "critical" if count >= self.certain_readings else "warning"
        if outcome_has_risen(chart):
            severity = "info"
        return self._sighting(chart, severity, text, count)

    def _has_ended(self, chart: Chart, limit: float) -> bool:
        """Whether responses ended before, so that the end token works."""
        bounds = ((_MEAN, self.same_length * limit), (_TRUNCATED, self.all_truncated))
        for name, bound in bounds:
            series = chart.series(name)
            earlier = (series.opening, series.lowest)
            if any(level is not None and level.level < bound for level in earlier):
                return True
        return any(value > 0 for _, value in chart.series(_TERMINATED))

    def _is_ample(self, chart: Chart) -> bool:
        """Whether the limit is long enough for an answer, as far as the log shows."""
        accuracy, loops = chart.series(_ACCURACY), chart.series(_LOOPS)
        is_earned = len(accuracy) > 0 and accuracy.level(RECENT) >= self.min_accuracy
        return is_earned or (len(loops) > 0 and loops.level(RECENT) >= self.looping_share)

    def _judge_different_lengths(self, chart: Chart) -> Sighting | None:
        mean, longest = chart.series(_MEAN), chart.series(_MAX)
        count = _trailing(chart.series(_TRUNCATED), partial(_is_at_least, self.all_truncated))
        if count < self.min_readings:
            return None
        text = (
            f"100 % of responses count as truncated, yet their mean length is {mean.last:.0f} "
            f"of at most {longest.last:.0f} tokens."
        )
        return self._sighting(chart, "warning", text, count)

    def _sighting(
        self,
        chart: Chart,
        severity: Severity,
        text: str,
        count: int,
        remedies: tuple[str, ...] | None = None,
    ) -> Sighting:
        names = (_MEAN, _MAX, _MIN, _TRUNCATED, _TERMINATED, _END_TOKENS, _ACCURACY, _LOOPS)
        counted = _END_TOKENS if chart.is_fresh(_END_TOKENS) else _MEAN
        first = chart.series(counted).steps(count)[0]
        evidence = cite_all(chart, *names)
        return Sighting(severity, text, evidence, remedies, find_onset=lambda: first)


def _trailing(series: Series, holds: Callable[[float], bool]) -> int:
    """Number of the latest readings for which a condition holds without interruption."""
    values = series.tail(len(series))
    return next((i for i, value in enumerate(reversed(values)) if not holds(value)), len(values))


def _is_at_least(bound: float, value: float) -> bool:
    return value >= bound
