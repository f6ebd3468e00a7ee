"""LEN003."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.health.run_health import (
    RECENT,
    first_step_where,
    has_improved,
    is_solved,
)
from grpodoctor.rules.shared.length_limit import (
    ALL_BATCHES,
    SHORTEST_LIMIT,
    grew_to,
    recurring_mean,
    share_at,
)
from grpodoctor.rules.shared.shapes.windows import in_steps
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_MEAN = "length/mean"
_MAX = "length/max"
_TRUNCATED = "length/truncated_rate"
_LONGEST = "the usual longest response"


class LengthNearLimit(Rule):
    """The mean length is close to the length limit, and truncation is not logged.

    What it sees:
        A mean length close to the limit on new tokens. The limit is the run's setting. If it is
        unknown, the rule infers it: from the longest response if its length is the same in nearly
        every reading, or from the largest mean length if that is a whole number that recurs. Only
        batches of truncated responses have the same mean length again and again. The finding is
        critical if the mean is at the limit in nearly every batch while the outcome does not rise:
        every response is then truncated. It is a warning if the mean is so close to the limit that
        at least half of the responses end near it, or if no outcome is logged and the mean rose to
        the limit from less than half of it, and `info` otherwise. It is
        `info` as well if every batch of the run reached that length and the mean is half of it or
        more.

    Why it matters:
        A truncated response is graded without its answer. Trainers of early 2025 do not log how
        many are truncated, so the run only looks slow. LEN002 describes what truncation costs.

    Evidence it needs:
        `length/mean`. Optional: `length/max` or the setting of the limit. If
        `length/truncated_rate` is logged, this rule reports nothing and LEN002 applies.

    Remedies:
        Log truncation (a newer trainer does). Read a few of the longest responses; raise the limit
        if they reason soundly to the end.

    When it is wrong:
        The rule infers truncation and does not count it. A task whose responses all have one length
        looks the same; if the outcome rises or is solved, the finding is therefore milder. Such a
        task has that length from the start, which tells it apart from responses that grew.

    References:
        DAPO, arXiv 2503.14476, section 3.4, for what truncation does to the reward.
    """

    code: ClassVar[str] = "LEN003"
    name: ClassVar[str] = "length-near-limit"
    condition: ClassVar[Condition] = "truncation"
    summary: ClassVar[str] = "Mean length is close to the limit, and truncation is not logged."
    inputs: ClassVar[tuple[Need, ...]] = (_MEAN,)
    remedies: ClassVar[tuple[str, ...]] = ("longer-limit", "soft-overlong")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 40
    judges_levels: ClassVar[bool] = True

    near_limit_share: float = 0.8
    """Mean length divided by the limit. A public run at 3,300 of 3,584 surely had most of its
    responses truncated; at half of the limit few can be."""
    constant_max_share: float = 0.9
    """Share of readings with the same longest response that makes it the limit."""
    all_batches_share: float = ALL_BATCHES
    """Share of the latest batches whose mean is at the limit. A public run had 128 of 128 tokens in
    each of 100 steps while its reward fell from .02 to 0."""
    half_truncated_level: float = 0.9
    """Mean length divided by the limit at which, whatever the distribution, at least half of the
    responses are longer than four fifths of the limit (Markov's inequality)."""
    mostly_truncated_level: float = 0.95
    """The same at which three quarters of the responses are that long; it needs twenty readings
    only. A public run at 250 of 256 tokens ended with an accuracy of 0."""
    endless_level: float = 0.98
    """The same at which hardly any response ends: if one in twenty did, they would have to use
    three fifths of the limit on average."""
    tight_mean: float = 0.5
    """The same from which a limit that every batch reaches cuts ordinary responses: an even spread
    of lengths up to the limit has this mean. See LEN002."""
    patience: int = 50
    """Readings without a rise of the outcome that make such a level a warning: healthy runs rise
    within that time."""
    min_readings: int = 5
    """Minimum readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Find the limit, then compare the mean length with it."""
        series = chart.series(_MEAN)
        if len(chart.series(_TRUNCATED)) or len(series) < self.min_readings:
            return None
        limit, source = self.limit(chart)
        level = series.level(2 * RECENT)
        if not limit or series.level(self.min_readings) > limit:
            return None  # another limit was in force
        share_at_limit, ending, remedies = self._share_at(series, limit), "", None
        shows_late = False
        if share_at_limit >= self.all_batches_share:
            batches = f"{share_at_limit:.0%} of batches {in_steps(series, 2 * RECENT)}"
            text = f"Every response is {limit:g} tokens long in {batches}"
        elif recurring_mean(chart.series(_MEAN)) == limit:
            text = (
                f"Several batches averaged exactly {limit:g} tokens {_steps_at(series, limit)}, so "
                "probably every response in them was truncated"
            )
            source, shows_late = "", level >= self.near_limit_share * limit
        elif level >= self.near_limit_share * limit:
            length = f"Length {in_steps(series, 2 * RECENT)}"
            text = f"{length} averages {level / limit:.0%} of the limit of {limit:g} tokens"
            if self._none_ends(series, limit):
                source, ending = "", ", so hardly any response ends"
                remedies = ("check-end-token", "longer-limit")
        else:
            return self._tight(chart, limit) if source == _LONGEST else None
        is_constant = share_at_limit >= self.all_batches_share
        severity = self._severity(chart, level / limit, is_constant=is_constant)
        if severity == "info" and has_improved(chart) is None and grew_to(series, limit):
            severity = "warning"
        known_from = f" ({source})" if source else ""
        text = f"{text}{known_from}{ending}; truncation is not logged."
        near = self.near_limit_share * limit if shows_late else None
        onset = _onset(chart, limit, near, is_longest=source == _LONGEST)
        return Sighting(severity, text, cite_all(chart, _MEAN, _MAX), remedies, onset)

    def _tight(self, chart: Chart, limit: float) -> Sighting | None:
        """A limit that is reached in every batch from the start, and is not twice the mean length.

        It cuts ordinary responses and not only those that loop.
        """
        longest, means = chart.series(_MAX), chart.series(_MEAN)
        if len(longest) < self.patience or set(longest.head(2 * RECENT)) != {limit}:
            return None
        mean = min(means.level(2 * RECENT), statistics.median(means.head(2 * RECENT)))
        if longest.window_min() < limit or not mean >= self.tight_mean * limit:
            return None
        text = (
            f"Every batch reaches {limit:g} tokens, and the mean is "
            f"{means.level(2 * RECENT) / limit:.0%} of that: the limit cuts ordinary responses."
        )
        first = means.first_step
        evidence = cite_all(chart, _MEAN, _MAX)
        return Sighting("info", text, evidence, ("longer-limit",), find_onset=lambda: first)

    def _none_ends(self, series: Series, limit: float) -> bool:
        """Whether the mean has been so near the limit from the first readings on.

        A missing end token and a limit that is far too low look the same.
        """
        opening, level = series.opening, series.level(2 * RECENT)
        return opening is not None and min(opening.level, level) >= self.endless_level * limit

    def _severity(self, chart: Chart, level: float, *, is_constant: bool) -> Severity:
        """Graver if all responses must be truncated, and the outcome does not rise."""
        if len(chart.series(_MEAN)) < 2 * RECENT or is_solved(chart):
            return "info"
        has_failed = has_improved(chart) is False
        if is_constant:
            is_known = self._setting(chart) is not None
            return "critical" if has_failed else "warning" if is_known else "info"
        is_grave = level >= self.mostly_truncated_level
        is_long = is_grave or len(chart.series(_MEAN)) >= self.patience
        is_high = level >= self.half_truncated_level
        return "warning" if has_failed and is_long and is_high else "info"

    def _share_at(self, series: Series, limit: float) -> float:
        """Share of the latest readings in which the mean itself is at the limit."""
        return share_at(series.tail(2 * RECENT), limit)

    def _setting(self, chart: Chart) -> float | None:
        setting = chart.knobs.get("max_length")
        is_number = isinstance(setting, int | float) and not isinstance(setting, bool)
        return float(setting) if is_number and setting > 0 else None  # type: ignore[arg-type, operator]

    def limit(self, chart: Chart) -> tuple[float, str]:
        """The limit in tokens, 0 if unknown, and where it comes from."""
        setting = self._setting(chart)
        if setting is not None:
            return setting, "from the config"
        for count in (20 * self.min_readings, 2 * RECENT):  # a limit may be lowered in between
            longest = chart.series(_MAX).tail(count)
            top = max(longest, default=0.0)
            is_constant = longest.count(top) >= self.constant_max_share * len(longest)
            if len(longest) >= self.min_readings and is_constant and top >= SHORTEST_LIMIT:
                return top, _LONGEST
        return recurring_mean(chart.series(_MEAN)), "the largest mean"


def _steps_at(means: Series, limit: float) -> str:
    """The steps from the first to the last batch whose mean is the limit."""
    steps = [step for step, mean in means if mean == limit]
    return f"(steps {steps[0]}-{steps[-1]})"


def _first_at(longest: Series, limit: float) -> int:
    """The step since which the longest responses have had the length of the limit."""
    return first_step_where(longest, lambda value: value == limit)


def _first_below(lengths: Series, limit: float) -> int:
    """The step since which the mean length has been within the limit."""
    return first_step_where(lengths, lambda value: value <= limit)


def _onset(
    chart: Chart, limit: float, near: float | None, *, is_longest: bool
) -> Callable[[], int] | None:
    """How to date the finding, None for its first sighting.

    Args:
        chart: the run.
        limit: the length limit in tokens.
        near: the length that counts as near a limit that shows late.
        is_longest: whether the usual longest response is the limit.
    """
    means = chart.series(_MEAN)
    if is_longest:
        return partial(_first_at, chart.series(_MAX), limit)
    if means.window_max() > limit:
        return partial(_first_below, means, limit)  # the limit was lowered
    return None if near is None else partial(_first_near, means, near)


def _first_near(lengths: Series, near: float) -> int:
    """The step since which the mean has been near a limit that only batches at it give away."""
    return first_step_where(lengths, lambda value: value >= near)
