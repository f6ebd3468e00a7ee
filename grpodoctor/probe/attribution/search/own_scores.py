"""The sampler's scores of its own tokens: what a fault changes when it generates, and when not."""

from __future__ import annotations

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, difference_gap
from grpodoctor.probe.attribution.variant import Variant


def own_scores(experiments: Experiments, variant: Variant) -> Floats | None:
    """The sampler's scores of its tokens in one pass; None if it cannot score."""
    setup = variant.setup
    try:
        scores_N = experiments.score(experiments.case.sampler, setup.processing)
    except EngineError:
        return None
    return scores_N[: variant.tokens.sampler_N.size]


def differ(experiments: Experiments, variant: Variant, one_N: Floats, other_N: Floats) -> bool:
    """Whether two columns of the variant's tokens differ by more than rounding."""
    at_N = variant.tokens.counted_N & np.isfinite(one_N) & np.isfinite(other_N)
    return bool(at_N.any() and experiments.is_loud(difference_gap(one_N[at_N], other_N[at_N])))
