"""The tokens were not drawn from the reported distribution."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.contract import Processing

_STANDARD_ERRORS = 6.0
"""Healthy engines stay below 2 (docs/attribution.md)."""
_OVER_GAP = 3.0
_FEWEST = 100
_EXPLAIN = {
    *("temperature", "truncation", "raw-logprobs", "prompt-ids"),
    *("stale-weights", "partial-sync", "model-config"),
}
"""Causes that change the distribution that tokens are drawn from."""


class WrongSampler(Cause):
    """Detected when the mean of log p + entropy is not zero, which |Δp| does not show."""

    id = "wrong-sampler"
    title = "Tokens are not drawn from the reported distribution"
    remedies = (
        "Turn off speculative decoding and custom logits processors and probe again: tokens must "
        "occur as often as their log-probabilities predict.",
        "Check for truncation, penalties or a temperature that the engine applies to sampling but "
        "not to the reported values.",
    )
    peels = False
    when = "always"
    cost = 0

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The mean of log p + entropy deviates from 0 by more than the gap explains."""
        tokens = variant.tokens
        at = tokens.finite_N
        if tokens.surplus_N is None or at.sum() < _FEWEST or not _as_drawn(experiments, variant):
            return None
        surplus_N = tokens.surplus_N[at]
        mean, spread = float(surplus_N.mean()), float(surplus_N.std())
        error = spread / np.sqrt(surplus_N.size)
        # By Pinsker and Cauchy-Schwarz, two distributions with a KL of k3 differ in this mean by
        # about sqrt(2 k3) of its spread.
        allowed = _STANDARD_ERRORS * error + _OVER_GAP * np.sqrt(2 * tokens.gap) * spread
        if abs(mean) <= allowed or error == 0:
            return None
        return Hypothesis(0.9, {"z": mean / error, "mean": mean})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Report the direction."""
        z, mean = float(hypothesis.facts["z"]), float(hypothesis.facts["mean"])
        direction = "likelier" if mean > 0 else "less likely"
        sampling = experiments.case.sampling
        cut = Processing.of(sampling) != Processing(temperature=sampling.temperature)
        asked = "; the reported values lack the requested truncation" if cut else ""
        return ExperimentResult(
            summary=(
                f"tokens are {direction} than chance allows: the mean of log p + entropy is "
                f"{mean:.3g} nats, z = {z:.0f} (healthy engines: below 2){asked}"
            ),
            confidence="likely",
            figures={"z": z, "mean": mean},
        )


def _as_drawn(experiments: Experiments, variant: Variant) -> bool:
    """Whether tokens should follow the learner's first scoring."""
    case = experiments.case
    if variant.setup.edits or variant.setup.transform or variant.setup.swapped:
        return False
    if experiments.named & _EXPLAIN or variant.setup.own_prompts != case.own_prompts:
        return False
    return case.processing.temperature == case.sampling.temperature
