"""The sampler uses different weights than the learner: an older checkpoint, or a missed sync."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.tensor_labels import labels_of
from grpodoctor.probe.attribution.tensors import given_checkpoints, tensor_names, tensors_in_words
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.support.numbers import count_of


class StaleWeights(Cause):
    """Proven by scoring with another checkpoint's weights in the learner."""

    id = "stale-weights"
    title = "The sampler uses different weights than the learner"
    remedies = (
        "Sync the weights before every rollout and wait until the engine has loaded them. After "
        "each sync, compare checksums of a few tensors on both sides.",
        "If rollouts are asynchronous by design, limit their age and correct with importance "
        "sampling against the sampler's log-probabilities.",
    )
    is_surrogate = True
    uses_other_files = True
    least = 0.6

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is another checkpoint that the sampler may use."""
        candidates = given_checkpoints(experiments)
        if not candidates or variant.setup.learner.options.get("weights"):
            return None
        return Hypothesis(0.85 if experiments.case.differing else 0.6)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score with the weights of each other checkpoint in the learner."""
        best: tuple[Variant, str] | None = None
        for folder in given_checkpoints(experiments):
            learner = variant.setup.learner.with_options(weights=str(folder))
            after = experiments.vary(variant, learner=learner)
            if best is None or after.gap < best[0].gap:
                best = after, folder.name
        if best is None:
            return None
        after, name = best
        differing, labels = experiments.case.differing or (), _labels(experiments)
        return ExperimentResult(
            summary=(
                f"with the weights of {name} in the learner, k3 falls from {variant.gap:.2g} to "
                f"{after.gap:.2g} nats per token"
            ),
            after=after,
            details=(name, *labels),
            figures={"differing_tensors": float(len(differing))} if differing else {},
            identity=_where(labels),
        )

    def remainder(self, experiments: Experiments, variant: Variant) -> ExperimentResult | None:
        """Likely if checksums differ and the gap exceeds rounding."""
        differing = experiments.case.differing
        if not differing or not experiments.exceeds_rounding(variant):
            return None
        return ExperimentResult(
            summary=(
                f"k3 is {variant.gap:.2g} nats per token, which exceeds rounding, and "
                f"the checksums of {count_of(len(differing), 'tensor')} differ"
            ),
            confidence="likely",
            details=_labels(experiments) or _names(experiments),
            identity=_where(_labels(experiments)),
        )


def _labels(experiments: Experiments) -> tuple[str, ...]:
    """Short names of the tensors that differ by checksum; empty if none is known, or all differ."""
    every, differing = _tensors(experiments)
    return labels_of(differing & every, every) if every and differing != every else ()


def _names(experiments: Experiments) -> tuple[str, ...]:
    """The tensors that differ, where the learner's files do not show which others it has."""
    every, differing = _tensors(experiments)
    return () if every else tuple(sorted(differing))


def _tensors(experiments: Experiments) -> tuple[frozenset[str], frozenset[str]]:
    """The learner's tensors, none if its files cannot be read, and those that differ."""
    differing = frozenset(experiments.case.differing or ())
    return frozenset(tensor_names(model_path(experiments.case.learner))), differing


def _where(labels: tuple[str, ...]) -> Identity | None:
    """The name of the cause with the tensors that differ, if others are equal."""
    if not labels:
        return None
    title = f"{StaleWeights.title} in {tensors_in_words(labels)}"
    return Identity(StaleWeights.id, title, StaleWeights.remedies)
