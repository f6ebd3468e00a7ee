"""The severity of a pair of engines, on the scale of `--fail-on`."""

from __future__ import annotations

import math
from typing import Literal

from grpodoctor.probe.controls.controls import ORDINARY
from grpodoctor.probe.results.results import Cell, Comparison, NamedCause
from grpodoctor.rules.mismatch.engine_mismatch import EngineMismatch
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
"""Mean |Δp|: a quarter of the gap of two healthy engines in bfloat16 (docs/probe.md)."""
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


def severity_of(cell: Cell) -> Severity:
    """The severity of a cell.

    `critical`: training was observed to suffer from such a gap, or some log-probabilities are not
    finite. `warning`: the gap is larger than that of two healthy engines or than this pair's own
    rounding, a cause was found, or a control failed. `info`: a known difference has an unknown
    effect, or a numerical difference has a negligible effect.
    """
    if cell.comparison is None:
        return "none"
    if _is_harmful(cell.comparison):
        return "critical"
    failed = any(control.passed is False for control in cell.controls)
    mean = figure(cell.comparison, "mismatch/prob_diff_mean")
    found = any(_is_fault(cause, mean) for cause in cell.causes)
    is_loud = exceeds_noise(cell)
    if failed or found or mean > ORDINARY or (is_loud and mean >= NEGLIGIBLE):
        return "warning"
    return "info" if cell.causes or is_loud else "none"


def exceeds_noise(cell: Cell) -> bool:
    """Whether the gap exceeds the rounding that was measured in this pair."""
    gap, noise = cell.gap, cell.noise
    return gap is not None and noise is not None and gap > max(EXACT, QUIET * noise)


def is_exact(comparison: Comparison) -> bool:
    """Whether all log-probabilities are bitwise equal, as batch-invariant engines return them."""
    return comparison.equal_tokens == comparison.tokens > 0


def _is_fault(cause: NamedCause, mean: float) -> bool:
    """Whether a cause is more than a declared numerical difference of negligible size.

    What an engine does without declaring it is a fault at any size, and so is a gap above the
    measured rounding that nothing explains.
    """
    if cause.cause in UNEXPLAINED or cause.figures.get("undeclared"):
        return True
    if cause.confidence == "possible":
        return False
    return mean >= NEGLIGIBLE or cause.cause not in NUMERICAL_CAUSES


def _is_harmful(comparison: Comparison) -> bool:
    is_far = figure(comparison, "mismatch/prob_diff_mean") >= HARM
    return is_far or figure(comparison, "mismatch/nonfinite") > 0


def figure(comparison: Comparison, metric: str) -> float:
    """A reading as a number; 0 if it is absent, not applicable or not a number."""
    value = comparison.value(metric)
    return 0.0 if math.isnan(value) else value


def measured_verdict(comparison: Comparison) -> str:
    """The verdict on a gap without attribution."""
    return without_numbers(comparison) + _gap_sentence(comparison)


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
        f"{reading.hits:,} of {reading.count:,} tokens lack a finite log-probability on one or "
        f"both sides{first}. For the other tokens: "
    )


def _gap_sentence(comparison: Comparison) -> str:
    if not isinstance(comparison.readings.get("mismatch/prob_diff_mean"), Mean):
        return "Nothing to compare."
    mean = figure(comparison, "mismatch/prob_diff_mean")
    largest = figure(comparison, "mismatch/prob_diff_max/worst_sequence")
    if not largest:
        return "The engines agree: all log-probabilities are bit-identical."
    numbers = f"mean |Δp| is {mean:.2g}, the largest {largest:.2g}"
    if mean > ORDINARY:
        return f"The engines differ by more than two healthy engines: {numbers}."
    return f"The engines differ by no more than two healthy engines: {numbers}."
