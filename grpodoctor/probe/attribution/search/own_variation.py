"""How much an engine's scores of the same tokens vary: from run to run, and with the batch."""

from __future__ import annotations

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.selection import PROVEN
from grpodoctor.probe.attribution.tokens import Floats, difference_gap
from grpodoctor.probe.attribution.variant import Variant
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
    folder, at = experiments.sub_sample(variant)
    if folder is None or variant.setup.behind is not None or engine.is_record:
        return False
    processing = experiments.case.processing
    try:
        among_N = experiments.score(engine, processing)[at]
        alone_N = experiments.score(engine, processing, rollouts=folder)
    except EngineError:
        return False
    tokens = variant.tokens
    at_N = tokens.counted_N[at] & np.isfinite(among_N) & np.isfinite(alone_N)
    own_N, reported_N = tokens.learner_N[at], tokens.sampler_N[at]
    at_N &= np.isfinite(own_N) & np.isfinite(reported_N)
    if not at_N.any():
        return False
    gap = difference_gap(own_N[at_N], reported_N[at_N])
    return difference_gap(alone_N[at_N], among_N[at_N]) > PROVEN * gap > 0


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
