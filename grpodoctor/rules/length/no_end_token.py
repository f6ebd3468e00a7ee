"""LEN007."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.trend import outcome_has_risen
from grpodoctor.runs.chart import Chart, Series
from grpodoctor.vocabulary.conditions import Condition

_MEAN, _MAX, _MIN = "length/mean", "length/max", "length/min"
_TRUNCATED = "length/truncated_rate"
_TERMINATED = "length/terminated_mean"


class NoEndToken(Rule):
    """No response ends: the end token is never produced, or not recognized.

    What it sees:
        One of two patterns. Every response of the latest readings has the same length, so nothing
        ended by itself. Or the log counts all responses as truncated although their lengths differ,
        so they do end, by a token that the trainer does not recognize. The finding is `info` while
        reward or accuracy rise: a grader may find the answer in a response that is cut.

    Why it matters:
        A response without its end is graded without its answer and, if truncated responses are
        masked, is not in the loss at all. A limit that is too short cuts some responses. A missing
        end token cuts all of them, and then a longer limit does not help.

    Evidence it needs:
        `length/mean`, and `length/max` or `length/truncated_rate`. Optional: `length/min`.

    Remedies:
        Compare the tokenizer's end token with the chat template's and the engine's stop tokens.
        Check that the loss mask contains the end token.

    When it is wrong:
        A limit far below what the task needs also cuts every response. The finding states which
        pattern it saw. To decide, generate one response with a much longer limit.

    References:
        TRL pull request 7039 (several end tokens, false truncation of .97); RAGEN issue 59 (end
        token masked out of the loss).
    """

    code: ClassVar[str] = "LEN007"
    name: ClassVar[str] = "no-end-token"
    condition: ClassVar[Condition] = "no-end-token"
    summary: ClassVar[str] = "No response ends by itself: the end token is missing or unrecognized."
    inputs: ClassVar[tuple[Need, ...]] = (_MEAN, (_MAX, _TRUNCATED))
    remedies: ClassVar[tuple[str, ...]] = ("check-end-token", "longer-limit")
    references: ClassVar[tuple[str, ...]] = (
        "github.com/huggingface/trl/pull/7039",
        "github.com/mll-lab-nu/RAGEN/issues/59",
    )

    min_readings: int = 5
    """Readings in which no response ended. With a share of 1 % that end, 128 responses have none
    with a probability of .28, and five such batches in a row of .002."""
    certain_readings: int = 10
    """Readings without a rise of any outcome that make the finding critical."""
    all_truncated: float = 0.999
    """Share of truncated responses that counts as all of them."""
    same_length: float = 0.999
    """Mean length divided by the longest that counts as one length for all."""
    differing_length: float = 0.9
    """Mean length divided by the longest, below which lengths clearly differ."""
    min_length: float = 32
    """Tokens below which responses of one length are ordinary, such as sums or labels."""

    def examine(self, chart: Chart) -> RuleResult:
        """Look for batches of one length, or for truncated responses of different lengths."""
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

    def _judge_one_length(self, chart: Chart) -> Sighting | None:
        limit = chart.series(_MAX).last
        count = _trailing(chart.series(_MEAN), partial(_is_at_least, self.same_length * limit))
        if count < self.min_readings:
            return None
        text = f"No response of the last {count} readings ends: all are {limit:.0f} tokens long."
        severity: Severity = "critical" if count >= self.certain_readings else "warning"
        if outcome_has_risen(chart):
            severity = "info"
        return self._sighting(chart, severity, text, count)

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

    def _sighting(self, chart: Chart, severity: Severity, text: str, count: int) -> Sighting:
        evidence = cite_all(chart, _MEAN, _MAX, _MIN, _TRUNCATED, _TERMINATED)
        first = chart.series(_MEAN).steps(count)[0]
        return Sighting(severity, text, evidence, find_onset=lambda: first)


def _trailing(series: Series, holds: Callable[[float], bool]) -> int:
    """Number of the latest readings for which a condition holds without interruption."""
    values = series.tail(len(series))
    return next((i for i, value in enumerate(reversed(values)) if not holds(value)), len(values))


def _is_at_least(bound: float, value: float) -> bool:
    return value >= bound
