"""The sampler holds other weights than the learner: an older checkpoint, or unsynced ones."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tensors import other_checkpoints

_SHOWN = 8


class StaleWeights(Cause):
    """Proven by scoring with the other checkpoint's weights in the learner."""

    id = "stale-weights"
    title = "The sampler holds other weights than the learner"
    remedies = (
        "Sync the weights before every rollout and wait until the engine has loaded them; compare "
        "checksums of a few tensors on both sides after each sync.",
        "If rollouts are asynchronous by design, bound their age and correct with importance "
        "sampling against the sampler's log-probabilities.",
    )
    least = 0.6

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Whether another checkpoint is known that the sampler may hold."""
        found = other_checkpoints(experiments)
        if not found or variant.setup.learner.options.get("weights"):
            return None
        return Hypothesis(0.85 if experiments.case.differing else 0.6)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """The learner with each of the other checkpoints' weights."""
        best: tuple[Variant, str] | None = None
        for folder in other_checkpoints(experiments):
            learner = variant.setup.learner.with_options(weights=str(folder))
            after = experiments.vary(variant, learner=learner)
            if best is None or after.gap < best[0].gap:
                best = after, folder.name
        if best is None:
            return None
        after, name = best
        differing = experiments.case.differing or ()
        return ExperimentResult(
            told=(
                f"with the weights of {name} the learner is k3 {after.gap:.2g} instead of "
                f"{variant.gap:.2g} nats per token from the sampler"
            ),
            after=after,
            details=(name, *differing[:_SHOWN]),
            figures={"differing_tensors": float(len(differing))} if differing else {},
        )

    def remainder(self, experiments: Experiments, variant: Variant) -> ExperimentResult | None:
        """Above rounding, everywhere, and with no other checkpoint to try."""
        differing = experiments.case.differing
        if differing is not None and not differing:
            return None
        if not experiments.is_loud(variant.gap):
            return None
        known = (
            f"{len(differing)} tensors differ by checksum"
            if differing
            else ("no checkpoint that the sampler may hold was given")
        )
        return ExperimentResult(
            told=(
                f"k3 of {variant.gap:.2g} nats per token is more than rounding and spread over "
                f"all tokens, as between two checkpoints; {known}"
            ),
            confidence="likely" if differing else "possible",
            details=(differing or ())[:_SHOWN],
        )
