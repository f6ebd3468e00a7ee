"""Earlier weights that a training run left next to the learner, and which of them were compared."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

from grpodoctor.probe.attribution.case import Case
from grpodoctor.probe.attribution.engine_variants import model_path
from grpodoctor.probe.inputs.neighbor_checkpoints import OPTIMIZER_FILES, Neighbors, neighbors_of

_OTHER_WEIGHTS = ("adapter", "perturb", "quantise", "sync", "weights")
"""Options with which a learner's weights are not those of its files."""

_BETTER = 0.5
"""Share of what a move of all weights leaves that a part of them may leave."""


class FoundWeights:
    """The earlier weights of a case that the user did not give.

    Args:
        case: the measured pair.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self.related: set[Path] = set()
        """Weights that have something in common with the gap. Only these are searched in parts:
        a search costs hundreds of passes, the comparison one."""
        self.lines: dict[Path, float] = {}
        """The gap that the best move towards each of the related weights leaves."""
        self.scaled: set[Path] = set()
        """Weights towards which a factor of the difference closes the gap: an update with a factor,
        not weights on the way, which are never quite on the line."""
        self.notes: dict[str, None] = {}
        """What was compared, and what could not be read."""

    @cached_property
    def neighbors(self) -> Neighbors:
        """The weights; none if both sides have equal tensors, or the learner's were changed."""
        case = self._case
        if case.differing == () or any(case.learner.options.get(key) for key in _OTHER_WEIGHTS):
            return Neighbors()
        found = neighbors_of(model_path(case.learner))
        given = {path.resolve() for path in (case.stale, model_path(case.sampler)) if path}
        checkpoints = tuple(path for path in found.checkpoints if path.resolve() not in given)
        return Neighbors(checkpoints, found.optimizer)

    def is_better(self, path: Path, gap: float) -> bool:
        """Whether a part of weights leaves far less than the best move towards all of them.

        The best of many parts imitates weights between two checkpoints better than one number does.
        Weights that the user gave have no such number.
        """
        return gap < _BETTER * self.lines.get(path, math.inf)

    @property
    def compared(self) -> list[Path]:
        """The weights that have something in common with the gap, the optimizer's first."""
        return [path for path in self.neighbors.all if path in self.related]


def is_optimizer(path: Path) -> bool:
    """Whether weights are those before the last update, by an optimizer's state."""
    return path.name in OPTIMIZER_FILES


def weights_in_words(path: Path) -> str:
    """Other weights in a sentence."""
    return f"the weights before the last update ({path.name})" if is_optimizer(path) else path.name
