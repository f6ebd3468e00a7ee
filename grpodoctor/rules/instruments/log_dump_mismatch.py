"""INS001."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Sighting
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.metrics import RECOMPUTED
from grpodoctor.vocabulary.values import Mean, Quantiles, Rate

_COMPARED = (
    "groups/zero_variance_rate",
    "groups/effective_rate",
    "groups/all_correct_rate",
    "groups/all_incorrect_rate",
    "groups/reward_std",
    "reward/mean",
    "reward/std",
    "accuracy/train",
    "length/mean",
    "length/truncated_rate",
    "mismatch/kl_k1",
    "mismatch/kl_k3",
)
_OF_ONE_BATCH = (
    "length/correct",
    "length/incorrect",
    "length/terminated_mean",
    "length/group_gap",
    "reward/truncated",
    "entropy/mean",
    "staleness/mean",
    "mismatch/nonfinite",
    "mismatch/prob_diff_mean",
    "mismatch/prob_diff_max",
    "mismatch/logprob_diff_mean",
    "mismatch/logprob_diff_max",
)
"""Compared where both sides are known to be over the same responses, and not elsewhere: frameworks
take them over tokens, over groups or with another mask."""
_SPREADS = ("reward/std", "groups/reward_std")
_OF_GROUPS = ("groups/zero_variance_rate", "groups/effective_rate")


_NOT_AVERAGED = (*_SPREADS, "mismatch/kl_k1", "mismatch/kl_k3")
"""Figures that are off throughout for good reason: a few responses scatter less than many, and
frameworks cap single terms."""
_MOST_STEPS = 64
"""Steps that a mean difference is taken over."""
_TINY = 1e-7
"""Absolute: rounding of differences of log-probabilities that are nearly equal."""


class _Pair(NamedTuple):
    """A figure as logged, and as the responses give it, or means of both over several steps."""

    metric: str
    logged: float
    recomputed: float
    steps: int = 1


@dataclass(frozen=True)
class LogDumpMismatch(Rule):
    """The log says another number than the responses that were dumped at the same step.

    What it sees:
        A figure that stands in the log and can be computed again from the rollout dump, and the two
        differ by more than rounding, by more than the two ways to take a standard deviation, and by
        more than chance would if the dump were only a part of the batch. What chance could do at a
        single step of few responses it cannot do at sixteen in a row: the mean difference of the
        latest steps is held against its own scatter. Where both count the same responses, as the
        steps and the rollouts of our own recorder do, nothing is left to chance.

    Why it matters:
        One of them is not what it is called: a mean over another population, a reward before or
        after shaping, a length with the prompt or the padding in it, groups counted after the ones
        without signal were thrown away. Everything else that is read from that log inherits it.

    Evidence it needs:
        A log and a rollout dump of the same steps. Of a run of our own recorder every step up to
        128 is compared, and fewer of later ones.

    Remedies:
        None for the training. Find out at which stage each of the two is taken; where the groups
        without variance are missing from the log alone, that stage is the filter.

    When it is wrong:
        A dump that is no random part of the batch, such as the first few prompts of each step.

    References:
        DAPO, arXiv 2503.14476, whose dynamic sampling drops groups before a trainer counts them.
    """

    code: ClassVar[str] = "INS001"
    name: ClassVar[str] = "log-dump-mismatch"
    former_names: ClassVar[tuple[str, ...]] = ("log-contradicts-dump",)
    summary: ClassVar[str] = "The log says another number than the responses it is about."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    inputs: ClassVar[tuple[Need, ...]] = (tuple(f"{name}/{RECOMPUTED}" for name in _COMPARED),)

    rounding: float = 0.005
    """Relative: consoles print three or four digits."""
    least: float = 0.002
    """Absolute: half a unit of the third decimal, twice, and what is added up from such."""
    deviations: float = 6.0
    """Standard errors of the dump's figure that a dump of some of the responses may be off: a run
    has thousands of steps and a dozen figures, and no alarm of chance is wanted in any of them."""
    of_estimators: float = 0.1
    """Relative, of a KL divergence: frameworks cap or mask single terms before the mean."""
    enough: int = 16
    """Steps from which on a mean difference is judged: of fewer, six standard errors are not yet
    rare."""
    end_of_sequence: float = 2.0
    """Tokens that a mean length may be off throughout: some count what ends a response."""
    of_one_batch: float = 0.001
    """Relative, where both sides are over the same responses: what is left is the rounding of
    per-token columns to 32 bits."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare every pair of this step; the furthest apart is told."""
        off = list(self._contradictions(chart))
        if not off:
            return None
        worst = max(off, key=_distance)
        filtered = _looks_filtered(off)
        others = f" and {len(off) - 1} more figures" if len(off) > 1 else ""
        because = (
            "; the log counts its groups after those without variance were left out"
            if filtered
            else ""
        )
        span = f" on average of {worst.steps} steps" if worst.steps > 1 else ""
        text = (
            f"the log says {worst.metric} {worst.logged:.4g}, the dumped responses say"
            f" {worst.recomputed:.4g}{span}{others}{because}"
        )
        shown = [worst, *(pair for pair in off if pair != worst)][:4]
        evidence = tuple(
            Evidence(pair.metric, chart.step, pair.logged, pair.recomputed) for pair in shown
        )
        return Sighting("info" if filtered else "warning", text, evidence)

    def _contradictions(self, chart: Chart) -> Iterator[_Pair]:
        """The pairs that disagree at this step, or else on average of the latest ones."""
        same = _is_one_batch(chart)
        for pair in _pairs(chart, same):
            if same:
                if not self._agree_exactly(chart, pair):
                    yield pair
            elif not self._agree(chart, pair):
                yield pair
            elif (means := _means(chart, pair.metric)) and not self._agree_on_average(
                chart, *means
            ):
                yield means[0]

    def _agree_on_average(self, chart: Chart, means: _Pair, error: float) -> bool:
        """Whether chance, as seen in the scatter of the differences, explains their mean."""
        if means.steps < self.enough or means.metric in _NOT_AVERAGED:
            return True
        allowed = self.least + self.rounding * max(abs(means.logged), abs(means.recomputed))
        allowed += self.end_of_sequence if means.metric == "length/mean" else 0.0
        allowed += self.deviations * error
        return any(abs(means.logged - said) <= allowed for said in _readings_of(chart, means))

    def _agree_exactly(self, chart: Chart, pair: _Pair) -> bool:
        """Of the same responses the same figure, whichever way a spread is taken."""
        largest = max(abs(pair.logged), abs(pair.recomputed))
        allowed = self.of_one_batch * largest + _TINY
        return any(abs(pair.logged - said) <= allowed for said in _readings_of(chart, pair))

    def _agree(self, chart: Chart, pair: _Pair) -> bool:
        allowed = self.least + self.rounding * max(abs(pair.logged), abs(pair.recomputed))
        if pair.metric.startswith("mismatch/"):
            allowed = self.of_estimators * max(abs(pair.logged), abs(pair.recomputed)) + 1e-5
        allowed += self.deviations * _standard_error(chart, pair)
        return any(abs(pair.logged - said) <= allowed for said in _readings_of(chart, pair))


def _is_one_batch(chart: Chart) -> bool:
    """Whether the log counts as many responses as the dump: a foreign number counts as one."""
    for metric in ("length/mean", "reward/mean"):
        logged, again = (chart.readings.get(name) for name in (metric, f"{metric}/{RECOMPUTED}"))
        if isinstance(logged, Mean) and isinstance(again, Mean) and logged.count > 1:
            return logged.count == again.count
    return False


def _pairs(chart: Chart, one_batch: bool) -> Iterator[_Pair]:
    for metric in (*_COMPARED, *_OF_ONE_BATCH) if one_batch else _COMPARED:
        logged, again = chart.value(metric), chart.value(f"{metric}/{RECOMPUTED}")
        if logged is not None and again is not None and math.isfinite(logged - again):
            yield _Pair(metric, logged, again)


def _means(chart: Chart, metric: str) -> tuple[_Pair, float] | None:
    """Means over the latest steps that have both figures; the standard error of their difference.

    None where there are not two such steps.
    """
    logged = chart.series(metric)
    again = dict(chart.series(f"{metric}/{RECOMPUTED}"))
    latest = zip(logged.steps(_MOST_STEPS), logged.tail(_MOST_STEPS), strict=True)
    both = [(value, again[step]) for step, value in latest if step in again]
    both = [(one, other) for one, other in both if math.isfinite(one - other)]
    if len(both) < 2:
        return None
    ones, others = zip(*both, strict=True)
    error = statistics.stdev(one - other for one, other in both) / math.sqrt(len(both))
    pair = _Pair(metric, statistics.fmean(ones), statistics.fmean(others), len(both))
    return pair, error


def _distance(pair: _Pair) -> float:
    return abs(pair.logged - pair.recomputed) / (abs(pair.logged) + abs(pair.recomputed) + 1e-12)


def _looks_filtered(off: list[_Pair]) -> bool:
    """Whether the log alone has no group without variance: they were dropped before it counted."""
    for pair in off:
        if pair.metric == _OF_GROUPS[0] and pair.logged == 0 < pair.recomputed:
            return True
        if pair.metric == _OF_GROUPS[1] and pair.logged == 1 > pair.recomputed:
            return True
    return False


def _readings_of(chart: Chart, pair: _Pair) -> tuple[float, ...]:
    """The recomputed figure; of a spread also with n - 1 in place of n."""
    if pair.metric not in _SPREADS:
        return (pair.recomputed,)
    if pair.metric == "groups/reward_std":
        count = _either(chart, "groups/size")
    else:
        count = float(_count(chart, "reward/mean"))
    unbiased = math.sqrt(count / (count - 1)) if count is not None and count > 1 else 1.0
    return (pair.recomputed, pair.recomputed * unbiased)


def _either(chart: Chart, metric: str) -> float | None:
    """A figure of the dump, which stands under its own name where the log has none."""
    again = chart.value(f"{metric}/{RECOMPUTED}")
    return chart.value(metric) if again is None else again


def _count(chart: Chart, metric: str) -> int:
    """How many the dump's figure is over."""
    for name in (f"{metric}/{RECOMPUTED}", metric):
        reading = chart.readings.get(name)
        if isinstance(reading, Mean | Rate):
            return reading.count
    return 0


def _standard_error(chart: Chart, pair: _Pair) -> float:
    """Of the dump's figure, as far as the dump tells how its responses scatter."""
    count = max(_count(chart, pair.metric), 1)
    reading = chart.readings.get(f"{pair.metric}/{RECOMPUTED}")
    if isinstance(reading, Rate):
        # Laplace's rule: of no hits in a few tries little follows.
        share = (reading.hits + 1) / (reading.count + 2)
        return math.sqrt(share * (1 - share) / count)
    if pair.metric == "reward/mean":
        return (_either(chart, "reward/std") or 0.0) / math.sqrt(count)
    if pair.metric == "length/mean":
        return _spread_of(chart, "length/p95") / math.sqrt(count)
    if pair.metric == "reward/std":
        return pair.recomputed / math.sqrt(2 * max(_count(chart, "reward/mean"), 1))
    return pair.recomputed / math.sqrt(count)


def _spread_of(chart: Chart, metric: str) -> float:
    """Half the width between the 16th and the 84th percentile of the dump's distribution."""
    for name in (f"{metric}/{RECOMPUTED}", metric):
        reading = chart.readings.get(name)
        if isinstance(reading, Quantiles) and reading.count > 1:
            return (reading.quantile(0.84) - reading.quantile(0.16)) / 2
    return 0.0
