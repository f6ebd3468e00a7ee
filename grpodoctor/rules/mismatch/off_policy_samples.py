"""MIS003."""

from __future__ import annotations

import math
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import (
    UNQUANTIZED,
    correction_of,
    is_quantized,
    mismatch_remedies,
)
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.series import Series
from grpodoctor.vocabulary.conditions import Condition

_GAP = "mismatch/nll_gap"
_LATEST = 20
"""Readings that make the level: a sampler that is synced every few steps gives a sawtooth, and the
median over a whole period is constant."""
_NOISE_READINGS = 50
_SELECTED = "groups/generated_per_kept"
_SHARPER_SAMPLER = ("one-temperature", "whole-distribution")
"""What makes a sampler and a learner describe one distribution. A person must look: no knob of a
live run does it."""


class OffPolicySamples(Rule):
    """The samples look off-policy: a distribution other than the learner's produced them.

    What it sees:
        The mean of -log p of the sampled tokens minus the mean entropy, both under the learner. The
        gap is zero if the learner's policy sampled the tokens, whatever that policy is. It does not
        require the sampler's log-probabilities. Above zero, the sampler is stale, quantized or runs
        at a higher temperature; below zero it samples from a sharper distribution. A gap above zero
        is `info` if a correction is in force.

    Why it matters:
        The gap shows a sampling temperature that the learner does not apply, top-p or top-k, stale
        or damaged weights, and coarse quantization, even if the sampler reports nothing.

    Evidence it needs:
        `mismatch/nll_gap`, for at least five steps.

    Remedies:
        Above zero: sync the sampler, correct by truncated importance sampling; give a quantized
        sampler a higher precision. Below zero: divide
        the learner's logits by the sampling temperature, and switch off top-p and top-k.

    When it is wrong:
        Selecting among samples moves the gap: dynamic sampling by +.018 in small runs, so the
        thresholds are higher there. A quantized sampler shows a gap for as long as it is used
        (int4: +.03 to +.07, even where it does no harm); with a correction in force, the finding
        stays at `info`. The loss mask must leave out tokens that the environment inserted. An
        off-by-one in the log-probabilities leaves the gap at zero; MIS002 reports that.

    References:
        Cover and Thomas, Elements of Information Theory, chapter 2: the expectation of -log p under
        p is its entropy.
    """

    code: ClassVar[str] = "MIS003"
    name: ClassVar[str] = "off-policy-samples"
    condition: ClassVar[Condition] = "off-policy"
    former_names: ClassVar[tuple[str, ...]] = ("samples-not-from-the-learner",)
    summary: ClassVar[str] = "Samples look off-policy: the learner's policy did not produce them."
    inputs: ClassVar[tuple[Need, ...]] = (_GAP,)
    remedies: ClassVar[tuple[str, ...]] = ("sync-sampler", "tis", UNQUANTIZED, *_SHARPER_SAMPLER)
    references: ClassVar[tuple[str, ...]] = (
        "Cover and Thomas, Elements of Information Theory, chapter 2",
    )

    clearance: ClassVar[int] = _LATEST

    info_gap: float = 0.03
    """Gap in nats for `info`. Healthy runs stay at .002 with a scatter of .005."""
    warning_gap: float = 0.06
    """Gap for a warning. Temperature .7 against 1 gives -.11 to -.15, a sampler 16 steps old +.2,
    int4 weights +.07 at first; a harmless sampler 4 steps old +.01."""
    critical_gap: float = 0.3
    """Gap that is critical: int3 weights gave .37 and cost half of the accuracy."""
    selection_allowance: float = 0.03
    """Added to all thresholds where groups are selected, which biases the gap upward."""
    min_standard_errors: float = 5.0
    """Standard errors of the level that the gap must exceed: the rule tests at every step, and the
    error is itself an estimate."""
    min_readings: int = 5
    """Minimum readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with zero, in nats and in standard errors."""
        series = chart.series(_GAP)
        if len(series) < self.min_readings or abs(series.last) < self.info_gap / 2:
            return None
        gap = series.level(_LATEST)
        allowance = self.selection_allowance if gap > 0 and self._is_selected(chart) else 0.0
        if not abs(gap) > self.info_gap + allowance:
            return None
        if not abs(gap) > self.min_standard_errors * self._error(series):
            return None
        severity = self._severity(abs(gap) - allowance)
        correction = correction_of(chart)
        if gap <= 0:
            cause = "the sampler's distribution is sharper than the learner's"
        elif correction and severity != "critical":
            severity, cause = "info", f"{correction} corrects for it"
        else:
            cause = _cause(chart)
        text = f"Samples look off-policy by {gap:+.3f} nats: {cause}."
        remedies = mismatch_remedies(chart) if gap > 0 else _SHARPER_SAMPLER
        return Sighting(severity, text, cite_all(chart, _GAP, "mismatch/prob_diff_mean"), remedies)

    def _severity(self, gap: float) -> Severity:
        if gap >= self.critical_gap:
            return "critical"
        return "warning" if gap >= self.warning_gap else "info"

    def _error(self, series: Series) -> float:
        """Standard error of the level, a median of few readings."""
        readings = min(len(series), _LATEST)
        return series.noise(_NOISE_READINGS) * math.sqrt(math.pi / 2 / readings)

    def _is_selected(self, chart: Chart) -> bool:
        generated = chart.value(_SELECTED)
        return bool(chart.knobs.get("dynamic_sampling")) or (generated or 1) > 1


def _cause(chart: Chart) -> str:
    """What makes samples less likely under the learner than its own would be."""
    if is_quantized(chart):
        return "the sampler is quantized"
    return "the sampler is stale, quantized or runs at a higher temperature"
