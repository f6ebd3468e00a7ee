"""INS001."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from grpodoctor.rules.base import Evidence, Need, Rule, RuleResult, Sighting
from grpodoctor.runs.chart import Chart
from grpodoctor.vocabulary.conditions import Condition
from grpodoctor.vocabulary.metric_qualifiers import RECOMPUTED
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
_SAME_RESPONSES = (
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
"""Compared only where log and dump are known to cover the same responses: frameworks average these
over tokens, over groups or with another mask."""
_SPREADS = ("reward/std", "groups/reward_std")
_ZERO_VARIANCE, _EFFECTIVE = "groups/zero_variance_rate", "groups/effective_rate"

_NOT_AVERAGED = (*_SPREADS, "mismatch/kl_k1", "mismatch/kl_k3")
"""Metrics that differ at every step for good reason: few responses scatter less than many, and
frameworks cap single terms."""
_MOST_STEPS = 64
"""Steps in the mean difference."""
_TINY = 1e-7
"""Absolute tolerance: rounding of differences of nearly equal log-probabilities."""


class _Pair(NamedTuple):
    """The logged and the recomputed value of a metric, or their means over several steps."""

    metric: str
    logged: float
    recomputed: float
    steps: int = 1


class LogDumpMismatch(Rule):
    """Logged values disagree with the responses dumped at the same step.

    What it sees:
        A logged value that differs from the value recomputed from the rollout dump: by more than
        rounding, and by more than the choice between the two definitions of standard deviation. If
        the dump is only part of the batch, the difference must also exceed chance. With few
        responses, chance can explain a difference at a single step, but not the same difference at
        sixteen consecutive steps. The rule therefore also compares the mean difference of the
        latest steps with its standard error. If log and dump cover the same responses, as in runs
        of grpodoctor's recorder, the rule makes no allowance for chance.

    Why it matters:
        One of the two values is not what its name says: a mean over other responses, a reward
        before or after shaping, a length that includes the prompt or padding, or groups counted
        after the zero-variance ones were filtered. Every other value from that log has the same
        problem.

    Evidence it needs:
        A log and a rollout dump of the same steps. For a run of grpodoctor's recorder, the rule
        compares every step up to 128 and some of the later ones.

    Remedies:
        The training needs no change. Find out at which stage each of the two values is computed. If
        only the log lacks zero-variance groups, it is computed after the group filter.

    When it is wrong:
        The dump is not a random part of the batch. For example, it holds the first few prompts of
        each step.

    References:
        DAPO, arXiv 2503.14476, whose dynamic sampling drops groups before a trainer counts them.
    """

    code: ClassVar[str] = "INS001"
    name: ClassVar[str] = "log-dump-mismatch"
    condition: ClassVar[Condition] = "wrong-log"
    former_names: ClassVar[tuple[str, ...]] = ("log-contradicts-dump",)
    summary: ClassVar[str] = "The logged value disagrees with the dumped responses."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2503.14476",)
    inputs: ClassVar[tuple[Need, ...]] = (tuple(f"{name}/{RECOMPUTED}" for name in _COMPARED),)

    relative_tolerance: float = 0.005
    """Relative tolerance: consoles print three or four digits."""
    absolute_tolerance: float = 0.002
    """Absolute tolerance: half a unit of the third decimal, twice, and sums of such values."""
    max_standard_errors: float = 6.0
    """Standard errors by which a partial dump may differ: a run has thousands of steps and a dozen
    metrics, and none of them may raise an alarm by chance."""
    kl_tolerance: float = 0.1
    """Relative tolerance of a KL divergence: frameworks cap or mask single terms."""
    min_steps: int = 16
    """Minimum steps for a mean difference: with fewer, six standard errors are not yet rare."""
    end_token_tolerance: float = 2.0
    """Tokens by which a mean length may differ: some frameworks count the end token."""
    same_responses_tolerance: float = 0.001
    """Relative tolerance where log and dump cover the same responses: what remains is the rounding
    of per-token columns to 32 bits."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare every pair of this step and report the largest difference."""
        pairs = list(self._disagreements(chart))
        if not pairs:
            return None
        worst = max(pairs, key=_distance)
        is_filtered = _looks_filtered(pairs)
        values = f"logged as {worst.logged:.4g} but is {worst.recomputed:.4g} in the dump"
        text = f"{worst.metric} is {values}"
        if worst.steps > 1:
            text += f", averaged over {worst.steps} steps"
        if is_filtered:
            text += "; the log omits zero-variance groups"
        elif len(pairs) > 1:
            text += f"; {len(pairs) - 1} more metrics disagree"
        shown = [worst, *(pair for pair in pairs if pair != worst)][:4]
        evidence = tuple(
            Evidence(pair.metric, chart.step, pair.logged, pair.recomputed) for pair in shown
        )
        return Sighting("info" if is_filtered else "warning", f"{text}.", evidence)

    def _disagreements(self, chart: Chart) -> Iterator[_Pair]:
        """The pairs that disagree at this step, or else on average over the latest steps."""
        is_same = _covers_same_responses(chart)
        for pair in _pairs(chart, is_same):
            if is_same:
                if not self._agree_exactly(chart, pair):
                    yield pair
            elif not self._agree(chart, pair):
                yield pair
            else:
                means = _means(chart, pair.metric)
                if means is not None and not self._agree_on_average(chart, *means):
                    yield means[0]

    def _agree_on_average(self, chart: Chart, means: _Pair, error: float) -> bool:
        """Whether chance, estimated from the scatter of the differences, explains their mean."""
        if means.steps < self.min_steps or means.metric in _NOT_AVERAGED:
            return True
        allowed = self.absolute_tolerance + self.relative_tolerance * max(
            abs(means.logged), abs(means.recomputed)
        )
        allowed += self.end_token_tolerance if means.metric == "length/mean" else 0.0
        allowed += self.max_standard_errors * error
        return any(
            abs(means.logged - value) <= allowed for value in _recomputed_values(chart, means)
        )

    def _agree_exactly(self, chart: Chart, pair: _Pair) -> bool:
        """Whether both values agree up to rounding, with either definition of a spread."""
        largest = max(abs(pair.logged), abs(pair.recomputed))
        allowed = self.same_responses_tolerance * largest + _TINY
        return any(abs(pair.logged - value) <= allowed for value in _recomputed_values(chart, pair))

    def _agree(self, chart: Chart, pair: _Pair) -> bool:
        allowed = self.absolute_tolerance + self.relative_tolerance * max(
            abs(pair.logged), abs(pair.recomputed)
        )
        if pair.metric.startswith("mismatch/"):
            allowed = self.kl_tolerance * max(abs(pair.logged), abs(pair.recomputed)) + 1e-5
        allowed += self.max_standard_errors * _standard_error(chart, pair)
        return any(abs(pair.logged - value) <= allowed for value in _recomputed_values(chart, pair))


def _covers_same_responses(chart: Chart) -> bool:
    """Whether log and dump have the same number of responses; a number without a count is one."""
    for metric in ("length/mean", "reward/mean"):
        logged = chart.readings.get(metric)
        recomputed = chart.readings.get(f"{metric}/{RECOMPUTED}")
        if isinstance(logged, Mean) and isinstance(recomputed, Mean) and logged.count > 1:
            return logged.count == recomputed.count
    return False


def _pairs(chart: Chart, is_same: bool) -> Iterator[_Pair]:
    for metric in (*_COMPARED, *_SAME_RESPONSES) if is_same else _COMPARED:
        logged, recomputed = chart.value(metric), chart.value(f"{metric}/{RECOMPUTED}")
        if logged is None or recomputed is None:
            continue
        if math.isfinite(logged - recomputed):
            yield _Pair(metric, logged, recomputed)


def _means(chart: Chart, metric: str) -> tuple[_Pair, float] | None:
    """Means over the latest steps with both values, and the standard error of their difference.

    None if there are fewer than two such steps.
    """
    logged = chart.series(metric)
    recomputed = dict(chart.series(f"{metric}/{RECOMPUTED}"))
    latest = zip(logged.steps(_MOST_STEPS), logged.tail(_MOST_STEPS), strict=True)
    pairs = [(value, recomputed[step]) for step, value in latest if step in recomputed]
    pairs = [(one, other) for one, other in pairs if math.isfinite(one - other)]
    if len(pairs) < 2:
        return None
    error = statistics.stdev(one - other for one, other in pairs) / math.sqrt(len(pairs))
    mean_logged = statistics.fmean(one for one, _ in pairs)
    mean_recomputed = statistics.fmean(other for _, other in pairs)
    return _Pair(metric, mean_logged, mean_recomputed, len(pairs)), error


def _distance(pair: _Pair) -> float:
    return abs(pair.logged - pair.recomputed) / (abs(pair.logged) + abs(pair.recomputed) + 1e-12)


def _looks_filtered(pairs: list[_Pair]) -> bool:
    """Whether only the log has no zero-variance groups, because they were filtered before it."""
    return any(
        (pair.metric == _ZERO_VARIANCE and pair.logged == 0 < pair.recomputed)
        or (pair.metric == _EFFECTIVE and pair.logged == 1 > pair.recomputed)
        for pair in pairs
    )


def _recomputed_values(chart: Chart, pair: _Pair) -> tuple[float, ...]:
    """The recomputed value; for a spread also with n - 1 instead of n."""
    if pair.metric not in _SPREADS:
        return (pair.recomputed,)
    if pair.metric == "groups/reward_std":
        count = _dump_value(chart, "groups/size")
    else:
        count = float(_count(chart, "reward/mean"))
    unbiased = math.sqrt(count / (count - 1)) if count is not None and count > 1 else 1.0
    return (pair.recomputed, pair.recomputed * unbiased)


def _dump_value(chart: Chart, metric: str) -> float | None:
    """A value of the dump, which has the plain name if the log does not contain the metric."""
    recomputed = chart.value(f"{metric}/{RECOMPUTED}")
    return chart.value(metric) if recomputed is None else recomputed


def _count(chart: Chart, metric: str) -> int:
    """Number of responses or groups behind the dump's value."""
    for name in (f"{metric}/{RECOMPUTED}", metric):
        reading = chart.readings.get(name)
        if isinstance(reading, Mean | Rate):
            return reading.count
    return 0


def _standard_error(chart: Chart, pair: _Pair) -> float:
    """Standard error of the dump's value, estimated from the scatter of its responses."""
    count = max(_count(chart, pair.metric), 1)
    reading = chart.readings.get(f"{pair.metric}/{RECOMPUTED}")
    if isinstance(reading, Rate):
        # Laplace's rule of succession: no hits in a few tries prove little.
        share = (reading.hits + 1) / (reading.count + 2)
        return math.sqrt(share * (1 - share) / count)
    if pair.metric == "reward/mean":
        return (_dump_value(chart, "reward/std") or 0.0) / math.sqrt(count)
    if pair.metric == "length/mean":
        return _spread_of(chart, "length/p95") / math.sqrt(count)
    if pair.metric == "reward/std":
        return pair.recomputed / math.sqrt(2 * max(_count(chart, "reward/mean"), 1))
    return pair.recomputed / math.sqrt(count)


def _spread_of(chart: Chart, metric: str) -> float:
    """Half the distance between the 16th and 84th percentiles of the dump's distribution."""
    for name in (f"{metric}/{RECOMPUTED}", metric):
        reading = chart.readings.get(name)
        if isinstance(reading, Quantiles) and reading.count > 1:
            return (reading.quantile(0.84) - reading.quantile(0.16)) / 2
    return 0.0
