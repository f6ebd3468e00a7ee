"""The tokens were not drawn from the distribution whose log-probabilities are reported."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.engines.jobs import Processing

_STANDARD_ERRORS = 6.0
"""Sound engines stay below 2 (docs/attribution.md)."""
_OVER_GAP = 3.0
_FEWEST = 100
_EXPLAIN = {
    *("temperature", "truncation", "raw-logprobs", "prompt-ids"),
    *("stale-weights", "partial-sync", "model-config"),
}
"""Causes with which the tokens fall as another learner says."""


class WrongSampler(Cause):
    """Seen when the mean of log p + entropy over tokens is not zero, which |Δp| does not show."""

    id = "wrong-sampler"
    title = "Tokens are not drawn from the reported distribution"
    remedies = (
        "Turn off speculative decoding and custom logits processors, and probe again: the tokens "
        "must fall as often as their log-probabilities say.",
        "Look for truncation, penalties or a temperature that the engine applies when it draws and "
        "not when it reports.",
    )
    peels = False
    when = "always"
    cost = 0

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Z of mean(log p + entropy), beyond what the gap itself can move it by."""
        tokens = variant.tokens
        at = tokens.finite_N
        if tokens.surplus_N is None or at.sum() < _FEWEST or not _as_drawn(experiments, variant):
            return None
        surplus_N = tokens.surplus_N[at]
        mean, spread = float(surplus_N.mean()), float(surplus_N.std())
        error = spread / np.sqrt(surplus_N.size)
        # By Pinsker and Cauchy-Schwarz two distributions a KL of k3 apart differ in this mean by
        # about sqrt(2 k3) of its spread.
        allowed = _STANDARD_ERRORS * error + _OVER_GAP * np.sqrt(2 * tokens.gap) * spread
        if abs(mean) <= allowed or error == 0:
            return None
        return Hypothesis(0.9, {"z": mean / error, "mean": mean})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Say which way."""
        z, mean = float(hypothesis.facts["z"]), float(hypothesis.facts["mean"])
        way = "likelier" if mean > 0 else "less likely"
        sampling = experiments.case.sampling
        cut = Processing.of(sampling) != Processing(temperature=sampling.temperature)
        asked = "; the cut that was asked for is not in what is reported" if cut else ""
        return ExperimentResult(
            told=(
                f"tokens are {way} than chance allows: mean of log p + entropy is {mean:.3g} nats, "
                f"z = {z:.0f} (sound engines: below 2){asked}"
            ),
            confidence="likely",
            figures={"z": z, "mean": mean},
        )


def _as_drawn(experiments: Experiments, variant: Variant) -> bool:
    """Whether tokens should fall as the learner says that was first scored."""
    case = experiments.case
    if experiments.named & _EXPLAIN or variant.setup.own_prompts != case.own_prompts:
        return False
    return case.processing.temperature == case.sampling.temperature
