"""Edits with the weights of other checkpoints, searched for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from grpodoctor.probe.attribution.base import Hypothesis
from grpodoctor.probe.attribution.edits import UPDATE_EDITS, EditFamily
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_search import Candidate, EditSearch
from grpodoctor.probe.attribution.tensors import (
    of_each_checkpoint,
    takes_other_weights,
    updated_checkpoints,
)
from grpodoctor.probe.attribution.variant import Variant


def update_hypothesis(
    experiments: Experiments, variant: Variant, strength: float
) -> Hypothesis | None:
    """There is another checkpoint, and a learner that can compute with the update since it.

    None if the learner computes with an update already.
    """
    used = any(name in UPDATE_EDITS for name, _ in variant.setup.edits)
    takes = not used and takes_other_weights(experiments, variant)
    return Hypothesis(strength) if takes else None


def edits_of_checkpoints(
    experiments: Experiments,
    variant: Variant,
    families_of: Callable[[Path], Sequence[EditFamily]],
) -> list[tuple[Candidate, Path]]:
    """The best edits with each other checkpoint and its directory, the smallest gap first.

    Args:
        experiments: of the case.
        variant: what the edits are added to.
        families_of: the edits to try with the checkpoint of a directory.

    Raises:
        EngineError: if nothing was found and a checkpoint could not be examined.
    """
    found = of_each_checkpoint(
        experiments,
        lambda folder: [
            (candidate, folder)
            for candidate in EditSearch(experiments, variant).best(families_of(folder))
            if experiments.found.is_better(folder, candidate.after.gap)
        ],
        updated_checkpoints,
    )
    return sorted(found, key=lambda each: each[0].after.gap)
