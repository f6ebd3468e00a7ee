"""MIS003."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from grpodoctor.rules.base import Need, Rule, RuleResult, Severity, Sighting, cite_all
from grpodoctor.rules.shared.engine_correction import correction_of, remedies_of_mismatch
from grpodoctor.runs.chart import Chart, Series
from grpodoctor.runs.estimators import step_noise

_GAP = "mismatch/nll_gap"
_LATEST = 20
"""Readings that make the level: a sampler that is synced every few steps draws a sawtooth, and the
median of a whole tooth does not swing."""
_NOISE_READINGS = 50
_SELECTED = "groups/generated_per_kept"


@dataclass(frozen=True)
class OffPolicySamples(Rule):
    """The sampled tokens do not come from the policy that learns.

    What it sees:
        The mean of -log p of the sampled tokens minus the mean entropy, both under the learner. It
        is zero when the learner sampled them, whatever the policy, and needs no log-probabilities
        of the sampler. Above zero the samples are noisier or older than the learner; below zero
        they are sharper. A gap above zero that a correction weighs already is a note.

    Why it matters:
        It sees a sampling temperature that the learner does not know of, top-p or top-k, stale or
        damaged weights and coarse quantisation, also where the sampler reports nothing.

    Evidence it needs:
        `mismatch/nll_gap`, for at least five steps.

    Remedies:
        Above zero: sync the sampler, correct by truncated importance sampling. Below zero: divide
        the learner's logits by the sampling temperature, and switch off top-p and top-k.

    When it is wrong:
        Choosing among samples moves it: dynamic sampling by +.018 in small runs, hence the wider
        band there. A quantised sampler is off for as long as it is used (int4 by +.03 to +.07, also
        where it does no harm); with a correction in force that is one long note. Tokens forced by
        an environment belong out of the mask. An off-by-one in the log-probabilities leaves it at
        zero; MIS002 sees that.

    References:
        Cover and Thomas, Elements of Information Theory, chapter 2: the expectation of -log p under
        p is its entropy.
    """

    code: ClassVar[str] = "MIS003"
    name: ClassVar[str] = "off-policy-samples"
    former_names: ClassVar[tuple[str, ...]] = ("samples-not-from-the-learner",)
    summary: ClassVar[str] = "The sampled tokens do not come from the policy that learns."
    inputs: ClassVar[tuple[Need, ...]] = (_GAP,)
    remedies: ClassVar[tuple[str, ...]] = ("sync-sampler", "tis")
    references: ClassVar[tuple[str, ...]] = (
        "Cover and Thomas, Elements of Information Theory, chapter 2",
    )

    clearance: ClassVar[int] = _LATEST

    small: float = 0.03
    """Gap in nats worth a note. Healthy runs stay at .002 with a scatter of .005."""
    large: float = 0.06
    """Gap that is a warning. Temperature .7 against 1 gives -.11 to -.15, a sampler 16 steps old
    +.2, int4 weights +.07 at first; a harmless sampler 4 steps old +.01."""
    ruin: float = 0.3
    """Gap that is critical: int3 weights gave .37 and cost half of the accuracy."""
    selection: float = 0.03
    """Added to all of these where groups are selected, which biases the gap upwards."""
    errors: float = 5.0
    """Standard errors of the level that it must exceed: the level is looked at in every step, and
    its error is itself an estimate."""
    readings: int = 5
    """Fewest readings for a level."""

    def examine(self, chart: Chart) -> RuleResult:
        """Compare the recent level with zero, in nats and in standard errors."""
        series = chart.series(_GAP)
        if len(series) < self.readings or abs(series.last) < self.small / 2:
            return None
        gap = series.level(_LATEST)
        allowance = self.selection if gap > 0 and self._is_selected(chart) else 0.0
        if not abs(gap) > max(self.small + allowance, self.errors * self._error(series)):
            return None
        kind = "noisier or older" if gap > 0 else "sharper"
        text = f"the samples are {kind} than the learner: -log p minus entropy is {gap:+.3f} nats"
        severity = self._severity(abs(gap) - allowance)
        correction = correction_of(chart)
        if gap > 0 and correction and severity != "critical":
            severity, text = "info", f"{text}; {correction} corrects for it"
        # No knob undoes a sampler that is sharper than the learner knows: a person must look.
        remedies = remedies_of_mismatch(chart) if gap > 0 else ()
        return Sighting(severity, text, cite_all(chart, _GAP, "mismatch/prob_diff_mean"), remedies)

    def _severity(self, gap: float) -> Severity:
        if gap >= self.ruin:
            return "critical"
        return "warning" if gap >= self.large else "info"

    def _error(self, series: Series) -> float:
        """Standard error of the level, a median of few readings."""
        readings = min(len(series), _LATEST)
        return step_noise(series.tail(_NOISE_READINGS)) * math.sqrt(math.pi / 2 / readings)

    def _is_selected(self, chart: Chart) -> bool:
        generated = chart.value(_SELECTED)
        return bool(chart.knobs.get("dynamic_sampling")) or (generated or 1) > 1
