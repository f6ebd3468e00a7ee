"""LEN003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Sighting, cite_all
from grpodoctor.rules.shared.run_health import RECENT
from grpodoctor.runs.chart import Chart

_MEAN = "length/mean"
_LONGEST = "length/max"
_CUT = "length/truncated_rate"


@dataclass(frozen=True)
class LengthNearLimit(Rule):
    """Responses are nearly as long as the limit, in a log that does not say how many are cut.

    What it sees:
        A mean length close to the limit on new tokens. The limit is the run's setting; where that
        is not known, the longest response wherever it is the same number in nearly every reading,
        or the mean length itself where its largest value, a whole number, comes again and again:
        no batch has the same mean length twice but for one whose responses were all cut.

    Why it matters:
        A response that is cut is judged without its answer. Trainers of early 2025 do not log how
        many are, so that the run looks merely slow: see LEN002 for what it costs.

    Evidence it needs:
        `length/mean`, better with `length/max` or the setting of the limit. Where
        `length/truncated_rate` is recorded the rule is silent, and LEN002 looks at it.

    Remedies:
        Have truncation recorded (a newer trainer does). Read a few of the longest responses; raise
        the limit if they reason soundly to the end.

    When it is wrong:
        It is a conclusion and no count: tasks whose answers have one length that happens to be near
        the limit look the same. So it never says more than a note.

    References:
        DAPO, arXiv 2503.14476, section 3.4, for what truncation does to the reward.
    """

    code: ClassVar[str] = "LEN003"
    name: ClassVar[str] = "length-near-limit"
    summary: ClassVar[str] = "Responses reach the length limit; nobody counts those that are cut."
    inputs: ClassVar[tuple[Need, ...]] = (_MEAN,)
    remedies: ClassVar[tuple[str, ...]] = ("longer-limit", "soft-overlong")
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    clearance: ClassVar[int] = 40

    near: float = 0.8
    """Mean length over the limit. A run of strangers with 3,300 of 3,584 was surely cut in most of
    its responses; at half of the limit few can be."""
    pinned: float = 0.9
    """Share of readings with one longest response that makes it the limit."""
    whole: int = 3
    """Readings whose mean is the same whole number, and the largest, that make it the limit. A run
    of strangers with a limit of 200 had it nine times in 250."""
    shortest: float = 32
    """Tokens of the shortest limit that is believed without being set: shorter answers are all of
    one length by themselves, as sums are."""
    readings: int = 5
    """Fewest readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Find the limit, then compare."""
        series = chart.series(_MEAN)
        if len(chart.series(_CUT)) or len(series) < self.readings:
            return None
        limit, how = self._limit(chart)
        if not limit:
            return None
        level = series.level(2 * RECENT)
        evidence = cite_all(chart, _MEAN, _LONGEST)
        if self._whole_batches(chart) == limit:
            text = f"again and again every response of a batch is {limit:g} tokens long"
        elif level >= self.near * limit:
            text = f"the mean length is {level / limit:.0%} of the limit of {limit:g} tokens"
        else:
            return None
        return Sighting("info", f"{text} ({how}): probably cut, which is not recorded", evidence)

    def _limit(self, chart: Chart) -> tuple[float, str]:
        setting = chart.knobs.get("max_length")
        if isinstance(setting, int | float) and not isinstance(setting, bool) and setting > 0:
            return float(setting), "the run's setting"
        longest = chart.series(_LONGEST).tail(20 * self.readings)
        top = max(longest, default=0.0)
        if len(longest) >= self.readings and longest.count(top) >= self.pinned * len(longest):
            return top, "the longest response of nearly every batch"
        return self._whole_batches(chart), "the largest mean"

    def _whole_batches(self, chart: Chart) -> float:
        means = [value for _, value in chart.series(_MEAN)]
        top = max(means)
        is_limit = top >= self.shortest and top == int(top)
        return top if is_limit and means.count(top) >= self.whole else 0.0
