"""An update of the weights was added to other tensors, or with a factor."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.weights.partial_update import SPARSE
from grpodoctor.probe.attribution.edit_causes.update_causes import (
    PARTS,
    UPDATE,
    identity_of_update,
    moved_in_words,
    update_in_words,
)
from grpodoctor.probe.attribution.edits import (
    UPDATE_MOVED,
    UPDATE_SCALE,
    EditFamily,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.checkpoint_edits import (
    edits_of_checkpoints,
    update_hypothesis,
)
from grpodoctor.probe.attribution.search.edit_search import Candidate
from grpodoctor.probe.attribution.search.random_part import is_random_part
from grpodoctor.probe.attribution.tensors import (
    layer_of,
)
from grpodoctor.probe.attribution.variant import Variant

_FACTORS = (-1.0, 0.25, 0.5, 0.75, 1.5, 2.0, 4.0)
_MOST_MOVES = 192
"""Moves up to which each layer is tried alone, too."""


class WeightUpdate(Cause):
    """Proven by adding the update since another checkpoint to other tensors of the learner."""

    id = "weight-update"
    title = UPDATE[UPDATE_SCALE].title.format(side="sampler")
    remedies = (UPDATE[UPDATE_SCALE].remedy,)
    is_surrogate = True
    uses_other_files = True
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is another checkpoint, and a learner that can compute with both."""
        return update_hypothesis(experiments, variant, 0.48)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Try each other checkpoint as the weights before the update."""
        moves = tuple(moves_of(experiments.tensor_names(variant.setup.learner)))
        found = edits_of_checkpoints(
            experiments,
            variant,
            lambda folder: _families(moves, folder, _parts(experiments, folder)),
        )
        if not found:
            return None
        first, *others = (_result(variant, *each) for each in found)
        best, _ = found[0]
        if is_random_part(experiments, variant, best.edit, best.after):
            first = _as_random_part(first, best)
        return replace(first, alternatives=tuple(others))


def _parts(experiments: Experiments, folder: Path) -> list[str]:
    """The parts whose update may have a factor; that of all tensors is the age of found weights."""
    found = experiments.found
    is_age = folder in found.compared and folder not in found.scaled
    return [part for part in PARTS if part or not is_age]


def _families(moves: tuple[str, ...], folder: Path, parts: Iterable[str]) -> list[EditFamily]:
    """The update since a checkpoint with each factor in each part, and with each move."""
    scaled = [
        EditFamily(UPDATE_SCALE, _FACTORS, "number", 1.0, f"{part}|{folder}") for part in parts
    ]
    return [*scaled, EditFamily(UPDATE_MOVED, moves, "choice", None, str(folder))]


def _result(variant: Variant, candidate: Candidate, folder: Path) -> ExperimentResult:
    (name, content), side = candidate.edit, variant.setup.sides[1]
    place, value = json.loads(content)
    change = moved_in_words(str(value))
    if name == UPDATE_SCALE:
        change = f"{PARTS[place.partition('|')[0]]}times {value:.4g}"
    return ExperimentResult(
        summary=(
            f"with {update_in_words(folder)} {change} in the {side}, k3 falls from "
            f"{variant.gap:.2g} to {candidate.after.gap:.2g} nats per token"
        ),
        after=candidate.after,
        details=(f"the update {change}",),
        identity=None if name == UPDATE_SCALE else _MISPLACED,
    )


def _as_random_part(result: ExperimentResult, best: Candidate) -> ExperimentResult:
    """The result under the name of what explains the rest, too, which no edit can show."""
    share = json.loads(best.edit[1])[1]
    return replace(
        result,
        summary=(
            f"{result.summary}; the rest is as large, and at the same tokens, as with a random "
            f"{share:.2g} of the elements of the update"
        ),
        confidence="likely",
        details=(*result.details, f"a random {share:.2g} of the elements arrived"),
        identity=SPARSE,
    )


_MISPLACED = identity_of_update(UPDATE_MOVED)


def moves_of(names: Iterable[str]) -> list[str]:
    """Moves of updates between siblings of a layer, in all layers and then in single ones."""
    siblings: dict[str, set[str]] = defaultdict(set)
    numbers: set[int] = set()
    for name in names:
        layer = layer_of(name)
        module, _, _ = name.rpartition(".")
        parent, _, leaf = module.rpartition(".")
        if layer is not None and leaf and not leaf.isdigit():
            siblings[parent].add(leaf)
            numbers.add(layer)
    pairs = dict.fromkeys(
        pair for leaves in siblings.values() for pair in combinations(sorted(leaves), 2)
    )
    moves = [
        move
        for one, other in pairs
        for move in (
            f"{one}>{other}", f"{other}>{one}", f"{one}>>{other}", f"{other}>>{one}",
            f"{one}<>{other}",
        )
    ]  # fmt: skip
    single = [f"{number}:{move}" for number in sorted(numbers) for move in moves]
    everywhere = [*moves, "next", "previous"] if numbers else []
    return [*everywhere, *(single if len(single) <= _MOST_MOVES else ())]
