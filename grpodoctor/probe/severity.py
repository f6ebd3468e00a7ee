"""How bad a cell of a probe is, on the scale that `--fail-on` speaks of."""

from __future__ import annotations

from typing import Literal

from grpodoctor.probe.controls.controls import ORDINARY
from grpodoctor.probe.results.results import Cell, Comparison
from grpodoctor.rules.mismatch.engine_mismatch import EngineMismatch
from grpodoctor.vocabulary.values import Mean, Rate, scalar

Severity = Literal["none", "info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("none", "info", "warning", "critical")

HARM = EngineMismatch.harm
"""Mean |Δp| from which training was seen to suffer."""

NEGLIGIBLE = 1e-4
"""Mean |Δp|: a quarter of what rounding to bfloat16 makes of two sound engines (docs/probe.md)."""
OF_NUMBERS = frozenset(
    {
        *("attention-kernel", "batch-variance", "kv-cache", "long-context-drift"),
        *("parallel-layout", "precision", "quantisation", "router-flips"),
    }
)
"""Causes that do harm by the size of their gap alone. The others are faults however small it is:
stale weights that differ little today are stale all the same."""


def severity_of(cell: Cell) -> Severity:
    """How bad a cell is.

    `critical`: training was seen to suffer from such a gap, or there are log-probabilities that are
    no numbers. `warning`: it is larger than two sound engines show, a cause was found, or
    a control failed. `info`: there is a known difference whose effect was not measured, or one of
    computing that has next to none.
    """
    if cell.comparison is None:
        return "none"
    if _is_harmful(cell.comparison):
        return "critical"
    failed = any(control.passed is False for control in cell.controls)
    mean = figure(cell.comparison, "mismatch/prob_diff_mean")
    found = any(
        cause.confidence != "possible" and (mean >= NEGLIGIBLE or cause.cause not in OF_NUMBERS)
        for cause in cell.causes
    )
    if failed or found or mean > ORDINARY:
        return "warning"
    return "info" if cell.causes else "none"


def _is_harmful(comparison: Comparison) -> bool:
    is_far = figure(comparison, "mismatch/prob_diff_mean") >= HARM
    return is_far or figure(comparison, "mismatch/nonfinite") > 0


def figure(comparison: Comparison, metric: str) -> float:
    """A reading as a number; 0 where it is absent, does not apply, or is no number."""
    reading = comparison.readings.get(metric)
    value = None if reading is None else scalar(reading)
    return value if value is not None and value == value else 0.0


def measured_verdict(comparison: Comparison) -> str:
    """What there is to say of a gap that nobody has looked into."""
    return without_numbers(comparison) + _of_the_others(comparison)


def without_numbers(comparison: Comparison) -> str:
    """A sentence about tokens that take part in no figure, with a space behind it; or nothing."""
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
        f"{reading.hits:,} of {reading.count:,} tokens have no finite log-probability on one side "
        f"or both{first}. Of the others: "
    )


def _of_the_others(comparison: Comparison) -> str:
    if not isinstance(comparison.readings.get("mismatch/prob_diff_mean"), Mean):
        return "There is nothing to compare."
    mean = figure(comparison, "mismatch/prob_diff_mean")
    largest = figure(comparison, "mismatch/prob_diff_max/worst_sequence")
    if not largest:
        return "The engines agree: every log-probability is the same to the bit."
    told = f"mean |Δp| is {mean:.2g}, the largest {largest:.2g}"
    if mean > ORDINARY:
        return f"The engines differ by more than two sound ones do: {told}."
    return f"The engines differ by no more than two sound ones may: {told}."
