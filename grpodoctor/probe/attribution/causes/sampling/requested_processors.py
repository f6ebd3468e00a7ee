"""Penalties of the run's sampling settings that its learner does not apply."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import Edits
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.reference import altering
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described
from grpodoctor.probe.engines.jobs import requested_edits

SEVERAL = Identity(
    "sampling-penalties",
    "The run samples with penalties that its learner does not apply",
    (
        "Disable penalties, biases and minimum lengths in the run's sampling settings: a learner "
        "computes log-probabilities without them.",
    ),
)


class RequestedProcessors(Cause):
    """Proven by scoring with the requested penalties."""

    id = "requested-penalties"
    title = SEVERAL.title
    remedies = SEVERAL.remedies
    cost = 0  # known settings are tried before any number is fitted to what they change
    when = "gap"
    least = 0.1

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The settings contain penalties that the sampler applies."""
        setup = variant.setup
        if (
            setup.swapped
            or setup.rescored is not None
            or not set(asked(experiments)) - set(setup.edits)
        ):
            return None
        return Hypothesis(0.99)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score with them."""
        engine, edits = altering(experiments, variant.setup.learner), asked(experiments)
        if engine is None:
            return None
        names = {name for name, _ in edits}
        kept = tuple(edit for edit in variant.setup.edits if edit[0] not in names)
        after = experiments.vary(variant, learner=engine, edits=(*kept, *edits))
        shown = " and ".join(map(described, edits))
        return ExperimentResult(
            summary=(
                f"the sampling settings have {shown}; if the learner applies the same, k3 falls "
                f"from {variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            identity=identity_of(edits),
            is_exact=True,
        )


def asked(experiments: Experiments) -> Edits:
    """The requested penalties that the sampler applies."""
    case = experiments.case
    return requested_edits(case.sampling, case.sampler_facts.processors)


def identity_of(edits: Edits) -> Identity:
    """The name of the penalties: of the only one, or of several together."""
    if len(edits) > 1:
        return SEVERAL
    cause = cause_of(edits[0])
    return Identity(cause.id, cause.title.format(side="sampler"), (cause.remedy,))
