"""How much an engine's scores of the same tokens vary: from run to run, and with the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.selection import PROVEN
from grpodoctor.probe.attribution.tokens import Flags, Floats, Integers, difference_gap
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.inputs.engine_spec import EngineSpec


def is_own(experiments: Experiments, variant: Variant) -> bool:
    """Whether a side differs so much from itself that no edit can be found for a gap.

    An edit changes one computation. It leaves what dropout, or another order of the batch, changes
    at random: then hundreds of edits are tried in vain, and the best one is chance. The bound is
    that from which `batch-variance` is proven.

    Raises:
        BudgetSpentError: if the time budget is used up.
    """
    most = PROVEN * variant.gap
    sides = (experiments.case.learner, experiments.case.sampler)
    if any(_difference(experiments, variant, engine, most) > most for engine in sides):
        return True
    return any(_differs_alone(experiments, variant, engine) for engine in sides)


def _difference(
    experiments: Experiments, variant: Variant, engine: EngineSpec, enough: float
) -> float:
    """k3 between two scorings by an engine; 0 if it cannot score.

    The batch is reversed only if scores in the same order differ by less than enough.
    """
    processing = experiments.case.processing
    try:
        first_N = experiments.score(engine, processing, repeat=1)
        again = _gap(variant, first_N, experiments.score(engine, processing, repeat=2))
        if again > enough:
            return again
        reversed_N = experiments.score(engine, processing, backwards=True)
        return _gap(variant, experiments.score(engine, processing), reversed_N)
    except EngineError:
        return 0.0


def _differs_alone(experiments: Experiments, variant: Variant, engine: EngineSpec) -> bool:
    """Whether a few responses alone have other scores than among all of them.

    An engine that sorts a batch by length gives most responses the same place in either order.
    """
    try:
        found = scored_alone(experiments, variant, engine, experiments.case.processing)
    except EngineError:
        return False
    if found is None:
        return False
    tokens = variant.tokens
    own_N, reported_N = tokens.learner_N[found.at], tokens.sampler_N[found.at]
    at_N = np.isfinite(own_N) & np.isfinite(reported_N) & tokens.counted_N[found.at]
    gap = difference_gap(own_N[at_N], reported_N[at_N]) if at_N.any() else 0.0
    return found.gap(at_N) > PROVEN * gap > 0


@dataclass(frozen=True, slots=True)
class ScoredAlone:
    """An engine's scores of a few responses: in a batch of their own, and among all responses."""

    alone_N: Floats
    among_N: Floats
    at: Integers
    """The places of their tokens."""

    def gap(self, wanted_N: Flags) -> float:
        """k3 between both at some of the tokens; 0 without any."""
        at_N = wanted_N & np.isfinite(self.alone_N) & np.isfinite(self.among_N)
        return difference_gap(self.alone_N[at_N], self.among_N[at_N]) if at_N.any() else 0.0


def scored_alone(
    experiments: Experiments, variant: Variant, engine: EngineSpec, processing: Processing
) -> ScoredAlone | None:
    """The scores of a few responses alone; None if they cannot be scored alone.

    Raises:
        EngineError: if the engine cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    folder, at = experiments.sub_sample(variant)
    if folder is None or variant.setup.behind is not None or engine.is_record:
        return None
    among_N = experiments.score(engine, processing)[at]
    return ScoredAlone(experiments.score(engine, processing, rollouts=folder), among_N, at)


def _gap(variant: Variant, one_N: Floats, other_N: Floats) -> float:
    """k3 between two columns of the tokens that a variant compares.

    Either one may be the one with the fault, and k3 is not symmetric, so the larger one counts.
    """
    size = variant.tokens.counted_N.size
    one_N, other_N = one_N[:size], other_N[:size]
    at_N = variant.tokens.counted_N & np.isfinite(one_N) & np.isfinite(other_N)
    one_N, other_N = one_N[at_N], other_N[at_N]
    return (
        max(difference_gap(one_N, other_N), difference_gap(other_N, one_N)) if one_N.size else 0.0
    )
