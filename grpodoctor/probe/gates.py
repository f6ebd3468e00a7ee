"""Limits that a pair of engines or a run must keep: `--accept k3=0.015` and `--exact`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from grpodoctor.errors import ConfigError, EngineError
from grpodoctor.probe.results.results import Cell, Comparison, ProbeResult
from grpodoctor.probe.run_mismatch.logged_mismatch import FIGURES, LoggedMismatch
from grpodoctor.probe.run_mismatch.run_mismatch import RunMismatch
from grpodoctor.probe.severity import figure, is_exact
from grpodoctor.support.numbers import part_of
from grpodoctor.support.suggestions import near_names

_METRICS = {
    "k3": "mismatch/kl_k3",
    "k1": "mismatch/kl_k1",
    "prob_diff_mean": "mismatch/prob_diff_mean",
    "prob_diff_max": "mismatch/prob_diff_max/worst_sequence",
    "logprob_diff_mean": "mismatch/logprob_diff_mean",
    "bias": "mismatch/bias",
    "chi2": "mismatch/chi2",
    "far_rate": "mismatch/far_rate",
    "nonfinite": "mismatch/nonfinite",
    "ess": "mismatch/ess",
    "pearson": "mismatch/pearson",
}
"""Names on the command line, with the metrics of a comparison."""
_RUN_FIGURES = {
    "k3": "kl_k3",
    "prob_diff_mean": "prob_diff_mean",
    "prob_diff_max": "prob_diff_max",
    "bias": "bias",
}
"""The same for the steps of a run."""
_COUNTS = ("equal_tokens", "tokens")
_AT_LEAST = frozenset({"ess", "pearson"})
"""Figures that are 1 for engines that agree."""
_SIGNED = frozenset({"bias", "k1"})


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure and its limit."""

    name: str
    value: float

    def keeps(self, measured: float) -> bool:
        """Whether a figure is within the limit; a figure that is not a number is not."""
        size = abs(measured) if self.name in _SIGNED else measured
        return size >= self.value if self.name in _AT_LEAST else size <= self.value

    def excess(self, measured: float) -> float:
        """How far a figure is on the wrong side of the limit; negative if it keeps it."""
        if math.isnan(measured):
            return math.inf
        size = abs(measured) if self.name in _SIGNED else measured
        return self.value - size if self.name in _AT_LEAST else size - self.value

    def phrase(self, measured: float) -> str:
        """The figure and the limit, such as `k3 0.0009 (limit 0.015)`."""
        return f"{self.name} {measured:.3g} (limit {self.value:g})"


@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether the limits are kept, in one line."""

    passed: bool
    line: str


def parse_limits(options: Sequence[str]) -> tuple[Limit, ...]:
    """The limits of `--accept NAME=VALUE`.

    Raises:
        ConfigError: if a limit has no number, or there is no such figure.
    """
    return tuple(map(_limit, options))


def _limit(text: str) -> Limit:
    name, equals, number = (part.strip() for part in text.partition("="))
    if equals and name not in _METRICS:
        near = near_names(name, list(_METRICS)) or list(_METRICS)
        raise ConfigError(
            f"there is no figure {name[:60]!r}", where="--accept", remedy=f"use {', '.join(near)}"
        )
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ConfigError(
            f"invalid limit {text[:60]!r}",
            where="--accept",
            remedy="write a figure and a number from 0, such as k3=0.015",
        )
    return Limit(name, value)


def judge_pairs(result: ProbeResult, limits: Sequence[Limit], *, exact: bool) -> GateResult:
    """Judge all pairs of a probe; the line names the pair furthest beyond a limit.

    Raises:
        EngineError: if a pair was not measured.
    """
    measured = [
        (cell, cell.comparison)
        for cell in result.cells
        if cell.comparison is not None and cell.status != "not_run"
    ]
    missing = len(result.cells) - len(measured)
    if missing:
        raise EngineError(
            f"{part_of(missing, len(result.cells), 'pairs', 'were')} "
            "not measured, so the limits of "
            f"{'--exact' if exact else '--accept'} cannot be judged",
            remedy="run the probe again with the same --output, or raise --budget",
        )
    for cell, _ in measured:
        if cell.untried:
            line = f"unsure: {' and '.join(cell.untried)} was not tried, {_named(cell)}"
            return GateResult(False, line)
    if exact:
        inexact = [pair for pair in measured if not is_exact(pair[1])]
        if inexact or not limits:
            cell, comparison = inexact[0] if inexact else measured[0]
            return _exactness_of(comparison.equal_tokens or 0, comparison.tokens, _named(cell))
    return _within(measured, limits)


def _exactness_of(equal: int, tokens: int, of: str) -> GateResult:
    words = f"{part_of(equal, tokens, 'log-probabilities', 'are')} bitwise equal"
    passed = equal == tokens > 0
    return GateResult(passed, f"{'exact' if passed else 'not exact'}: {words}, {of}")


def _within(measured: Sequence[tuple[Cell, Comparison]], limits: Sequence[Limit]) -> GateResult:
    for cell, comparison in measured:
        if figure(comparison, "mismatch/nonfinite") > 0 and not _allows_nonfinite(limits):
            share = comparison.value("mismatch/nonfinite")
            words = f"{share:.2%} of the tokens lack a finite log-probability"
            return GateResult(False, f"rejected: {words}, {_named(cell)}")
    figures = [
        (limit, comparison.value(_METRICS[limit.name]), cell)
        for cell, comparison in measured
        for limit in limits
    ]
    limit, value, cell = max(figures, key=lambda each: each[0].excess(each[1]) / _unit(each[0]))
    passed = limit.keeps(value)
    word = "accepted" if passed else "rejected"
    return GateResult(passed, f"{word}: {limit.phrase(value)}, {_named(cell)}")


def _allows_nonfinite(limits: Sequence[Limit]) -> bool:
    return any(limit.name == "nonfinite" for limit in limits)


def _unit(limit: Limit) -> float:
    """Limits of several figures are compared relative to their size."""
    return limit.value or 1e-30


def _named(cell: Cell) -> str:
    return f"{cell.sampler} and {cell.learner}, responses of up to {cell.max_tokens} tokens"


def judge_steps(result: RunMismatch, limits: Sequence[Limit], *, exact: bool) -> GateResult:
    """Judge the mean figures of a run's last steps; of the largest |Δp|, the largest.

    Args:
        result: of the run.
        limits: of the figures.
        exact: whether all log-probabilities must be bitwise equal.

    Raises:
        ConfigError: if a run has no such figure.
    """
    _refuse_unknown(limits, _RUN_FIGURES, "the steps of a run have", "")
    steps = f"the last {len(result.steps)} steps of {result.run}"
    if result.is_outdated:
        steps += f"; those after {result.steps[-1].step} lack a side"
    if result.unusable:
        words = f"{result.unusable:,} tokens lack a usable log-probability"
        return GateResult(False, f"rejected: {words}, {steps}")
    if exact:
        equal, tokens = (sum(getattr(step, name) for step in result.steps) for name in _COUNTS)
        if equal < tokens or not limits:
            return _exactness_of(equal, tokens, steps)
    figures = {
        limit.name: [float(getattr(step, _RUN_FIGURES[limit.name])) for step in result.steps]
        for limit in limits
    }
    return _within_steps(limits, figures, steps)


def judge_logged(result: LoggedMismatch, limits: Sequence[Limit]) -> GateResult:
    """Judge the mean logged figures of the last steps; of the largest |Δp|, the largest.

    Raises:
        ConfigError: if the log has no such figure.
    """
    figures = {
        FIGURES[metric]: [each for each in values if math.isfinite(each)]
        for metric, values in result.figures.items()
    }
    or_else = ", or a run whose rollouts have both sides"
    _refuse_unknown(limits, figures, "the log of the run has", or_else)
    steps = f"the last {len(result.steps)} steps of {result.run}, as logged"
    return _within_steps(limits, figures, steps)


def _refuse_unknown(limits: Sequence[Limit], known: Iterable[str], who: str, or_else: str) -> None:
    names = list(known)
    unknown = [limit.name for limit in limits if limit.name not in names]
    if unknown:
        raise ConfigError(
            f"{who} no figure {unknown[0]}",
            where="--accept",
            remedy=f"use {', '.join(names)}{or_else}",
        )


def _within_steps(
    limits: Sequence[Limit], figures: Mapping[str, Sequence[float]], steps: str
) -> GateResult:
    """Judge the means of figures over steps; the line names the one furthest beyond its limit."""
    judged = [
        (limit, (max if limit.name == "prob_diff_max" else fmean)(figures[limit.name]))
        for limit in limits
    ]
    limit, value = max(judged, key=lambda each: each[0].excess(each[1]) / _unit(each[0]))
    passed = limit.keeps(value)
    word = "accepted" if passed else "rejected"
    return GateResult(passed, f"{word}: {limit.phrase(value)}, {steps}")
