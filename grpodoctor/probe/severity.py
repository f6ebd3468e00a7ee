"""The severity of a pair of engines, on the scale of `--fail-on`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from grpodoctor.probe.controls.controls import ORDINARY
from grpodoctor.probe.results.results import Cell, Comparison, NamedCause
from grpodoctor.rules.mismatch.engine_mismatch import EngineMismatch
from grpodoctor.support.numbers import part_of
from grpodoctor.vocabulary.values import Mean, Rate

Severity = Literal["none", "info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("none", "info", "warning", "critical")

HARM = EngineMismatch.warning_difference
"""Mean |Δp| from which training was observed to suffer."""

EXACT = 2e-9
"""k3 below which two engines agree exactly: |Δlogp| of 6e-5, the float32 rounding of a dozen
layers."""
QUIET = 4.0
"""A gap up to this multiple of the noise counts as rounding: two engines round independently, which
doubles it, and their kernels sum in different orders (`python -m tests.benchmarks attribution`)."""
NEGLIGIBLE = 1e-4
"""Mean |Δp| below which a gap above rounding has no effect: a quarter of the gap of two healthy
engines in bfloat16 (docs/probe-results.md)."""
UNEXPLAINED = frozenset({"unknown", "computed-differently"})
"""Names of a gap above rounding that no experiment explains."""
NUMERICAL_CAUSES = frozenset(
    {
        *("attention-kernel", "batch-variance", "kv-cache", "long-context-drift"),
        *("parallel-layout", "precision", "quantisation", "router-flips"),
    }
)
"""Causes whose harm depends only on the size of the gap. All other causes are faults at any size:
stale weights with a small difference are still stale."""


Level = Literal["rounding", "usual", "unsettled", "above"]
"""A gap next to the rounding of its pair: within the rounding that was measured in it; within the
usual rounding of its precision; above that in k3 alone, so that only a measurement can tell; or
above rounding."""


def severity_of(cell: Cell) -> Severity:
    """The severity of a cell: of its gap, and at least `warning` if a setting was not tried."""
    measured = measured_severity(cell)
    is_mild = SEVERITIES.index(measured) < SEVERITIES.index("warning")
    return "warning" if cell.untried and cell.comparison is not None and is_mild else measured


def measured_severity(cell: Cell) -> Severity:
    """The severity of a cell's gap.

    `critical`: training was observed to suffer from such a gap, or some log-probabilities are not
    finite. `warning`: the gap is larger than this pair's own rounding, a cause other than rounding
    was found, or a control failed. `info`: a known difference has an unknown effect, a numerical
    difference has a negligible effect or causes rounding only, or the rounding is large.

    A gap within the measured rounding is `none` or `info`, unless a fault with another signature
    than rounding was found in it, or a control failed.
    """
    if cell.comparison is None:
        return "none"
    level, mean = level_of(cell), figure(cell.comparison, "mismatch/prob_diff_mean")
    found = any(is_fault(cell, cause) for cause in cell.causes)
    is_harmful = mean >= HARM and (found or level != "rounding")
    if is_harmful or figure(cell.comparison, "mismatch/nonfinite") > 0:
        return "critical"
    failed = any(control.passed is False for control in cell.controls)
    is_above = level == "above"
    if failed or found or (is_above and mean >= NEGLIGIBLE):
        return "warning"
    is_open = is_above or level == "unsettled" or mean >= HARM
    return "info" if cell.causes or is_open else "none"


def level_of(cell: Cell) -> Level:
    """The gap of a measured cell next to its rounding.

    The usual rounding of a precision is that of tiny models, and a few tokens of a mixture of
    experts can raise k3 alone: a gap above it counts only if the mean |Δp| is unusual, too.
    """
    if cell.gap is not None and cell.gap <= EXACT:
        return "rounding"
    comparison = cell.comparison
    mean = 0.0 if comparison is None else figure(comparison, "mismatch/prob_diff_mean")
    if cell.gap is None or cell.noise is None:
        return "above" if mean > ORDINARY else "usual"
    is_within = cell.gap <= max(EXACT, QUIET * cell.noise)
    if not cell.noise_is_usual:
        return "rounding" if is_within else "above"
    if is_within:
        return "usual"
    return "above" if mean > ORDINARY else "unsettled"


def is_within_rounding(cell: Cell) -> bool:
    """Whether the gap is no larger than rounding, measured or usual."""
    return level_of(cell) in ("rounding", "usual")


def is_exact(comparison: Comparison) -> bool:
    """Whether all log-probabilities are bitwise equal, as batch-invariant engines return them."""
    return comparison.equal_tokens == comparison.tokens > 0


def is_fault(cell: Cell, cause: NamedCause) -> bool:
    """Whether a cause is more than a declared numerical difference of negligible size.

    What an engine does without declaring it is a fault at any size, and so is a gap above the
    measured rounding that nothing explains. A numerical difference that causes no more than
    rounding is none: two correct kernels round differently. Other causes, such as a temperature,
    are found in a gap of any size because their signature is not that of rounding.
    """
    if cause.cause in UNEXPLAINED or cause.figures.get("undeclared"):
        return True
    is_possible = cause.confidence == "possible"
    if not is_possible and cause.cause not in NUMERICAL_CAUSES:
        return True
    if cell.comparison is None or is_within_rounding(cell):
        return False
    mean = figure(cell.comparison, "mismatch/prob_diff_mean")
    return mean >= NEGLIGIBLE and (level_of(cell) == "above" or not is_possible)


def is_rounding_cause(cell: Cell, cause: NamedCause) -> bool:
    """Whether a cause only explains where a gap within rounding comes from."""
    return is_within_rounding(cell) and not is_fault(cell, cause)


def figure(comparison: Comparison, metric: str) -> float:
    """A reading as a number; 0 if it is absent, not applicable or not a number."""
    value = comparison.value(metric)
    return 0.0 if math.isnan(value) else value


def with_untried(verdict: str, untried: Sequence[str]) -> str:
    """A verdict after the settings that were not tried; unchanged if there are none."""
    if not untried:
        return verdict
    settings, was = " and ".join(untried), "was" if len(untried) == 1 else "were"
    return (
        f"Unsure: {settings} {was} not tried, so the run's own mismatch is unknown. Without "
        f"{'it' if len(untried) == 1 else 'them'}: {verdict}"
    )


def measured_verdict(cell: Cell) -> str:
    """The verdict on the gap of a measured cell without attribution."""
    if cell.comparison is None:
        return ""
    verdict = without_numbers(cell.comparison) + _gap_sentence(cell, cell.comparison)
    return with_untried(verdict, cell.untried)


def without_numbers(comparison: Comparison) -> str:
    """A sentence about tokens without finite values and a space; empty if there are none."""
    reading = comparison.readings.get("mismatch/nonfinite")
    if not isinstance(reading, Rate) or not reading.hits:
        return ""
    if reading.hits == reading.count:
        return "No token has a finite log-probability on both sides. "
    first = "".join(
        f" (the first: prompt {prompt}, sample {sample}, token {token})"
        for prompt, sample, token in comparison.unmeasured[:1]
    )
    return (
        f"{part_of(reading.hits, reading.count, 'tokens', 'lack')} "
        "a finite log-probability on one or "
        f"both sides{first}. For the other tokens: "
    )


def _gap_sentence(cell: Cell, comparison: Comparison) -> str:
    if not isinstance(comparison.readings.get("mismatch/prob_diff_mean"), Mean):
        return "Nothing to compare."
    mean = figure(comparison, "mismatch/prob_diff_mean")
    largest = figure(comparison, "mismatch/prob_diff_max/worst_sequence")
    if not largest:
        return "The engines agree: all log-probabilities are bit-identical."
    numbers = f"mean |Δp| is {mean:.2g}, the largest {largest:.2g}"
    level = level_of(cell)
    if cell.gap is None or cell.noise is None:
        more = "more" if level == "above" else "no more"
        return f"The engines differ by {more} than two healthy engines: {numbers}."
    gap, limit = f"k3 is {cell.gap:.2g} nats per token", max(EXACT, QUIET * cell.noise)
    if not cell.noise_is_usual:
        what = "agree up to" if level == "rounding" else "differ by more than"
        rounding = f"rounding in this model explains up to {limit:.2g}"
        return f"The engines {what} rounding: {gap}, {rounding}; {numbers}." + large_rounding(cell)
    usual = f"the usual rounding of this precision is up to {limit:.2g}"
    unmeasured = "The rounding of this model was not measured."
    if level == "usual":
        return f"The engines agree up to usual rounding: {gap}, {usual}; {numbers}. {unmeasured}"
    what = "differ by more than usual rounding" if level == "above" else "may differ"
    return f"The engines {what}: {gap}, {usual}; {numbers}. {unmeasured}"


def large_rounding(cell: Cell) -> str:
    """A space and a sentence if rounding alone is as large as gaps that harmed training."""
    if cell.comparison is None or level_of(cell) != "rounding":
        return ""
    mean = figure(cell.comparison, "mismatch/prob_diff_mean")
    if mean < HARM:
        return ""
    return (
        f" Rounding of this size (mean |Δp| {mean:.2g}) may harm training: compute in float16 or "
        "float32."
    )
