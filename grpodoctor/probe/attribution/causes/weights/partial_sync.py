"""Some of the sampler's tensors come from another checkpoint."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.edits import OTHER_WEIGHTS, UPDATE_FORMAT, UPDATE_PART
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.found_weights import weights_in_words
from grpodoctor.probe.attribution.search.tensor_labels import labels_of
from grpodoctor.probe.attribution.search.tensor_search import TensorSearch
from grpodoctor.probe.attribution.tensors import (
    PARTIAL_SYNC,
    of_each_checkpoint,
    takes_other_weights,
    tensors_in_words,
    unequal_tensors,
)
from grpodoctor.probe.attribution.variant import Variant


class PartialSync(Cause):
    """Proven by taking single tensors of another checkpoint in the learner."""

    id = PARTIAL_SYNC.id
    title = PARTIAL_SYNC.title
    remedies = PARTIAL_SYNC.remedies
    is_surrogate = True
    uses_other_files = True
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is another checkpoint, and a learner that can take single tensors of it."""
        setup = variant.setup
        used = bool(setup.learner.options.get("weights")) or any(
            name in (OTHER_WEIGHTS, UPDATE_FORMAT, UPDATE_PART) for name, _ in setup.edits
        )
        # Weights that were moved back leave an error, which tensors of other weights would fit.
        used |= "earlier-weights" in experiments.named
        takes = not used and takes_other_weights(experiments, variant)
        return Hypothesis(0.5) if takes else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Search each other checkpoint; one that cannot be read does not end the search."""
        found = of_each_checkpoint(
            experiments,
            lambda folder: [each for each in [_exchanged(experiments, variant, folder)] if each],
        )
        return min(found, key=lambda each: each.after.gap if each.after else 0.0, default=None)


def _exchanged(experiments: Experiments, variant: Variant, folder: Path) -> ExperimentResult | None:
    """The learner with the tensors of a checkpoint that explain most; None if none or all do."""
    every = frozenset(experiments.tensor_names(variant.setup.learner))
    names = unequal_tensors(experiments, folder, every)
    search = TensorSearch(experiments, variant, folder, sorted(names))
    taken = search.run()
    if not taken or taken == names == every:  # all of them are stale weights
        return None
    after = experiments.vary(variant, edits=(*variant.setup.edits, search.edit(taken)))
    if not experiments.found.is_better(folder, after.gap):
        return None
    labels = labels_of(taken, every)
    return ExperimentResult(
        summary=(
            f"with {tensors_in_words(labels)} of {weights_in_words(folder)} in the learner, "
            f"k3 falls from {variant.gap:.2g} to {after.gap:.2g} nats per token"
        ),
        after=after,
        details=labels,
        figures={"tensors": float(len(taken))},
    )
