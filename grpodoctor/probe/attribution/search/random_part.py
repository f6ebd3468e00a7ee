"""Whether a random part of the elements of an update arrived, which no edit can imitate.

The weights that differ are unknown, so no computation of the learner agrees with the sampler. But
the mean effect is that of the whole update times the share that arrived, and what remains has the
size, and the place among the tokens, of what any other random part of that share leaves.
"""

from __future__ import annotations

import json

import numpy as np

from grpodoctor.probe.attribution.edits import UPDATE_PART, UPDATE_SCALE, Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Flags, Floats
from grpodoctor.probe.attribution.variant import Variant

_PARTS = 8
"""Random parts that are compared with each other, and with the sampler."""
_CLIP = 5.0
"""Upper bound on |Δlogp| per token, as in the gap."""
_LEAST_SPREAD = 0.05
"""Smallest difference of sizes, as logarithm, and of correlations that counts as chance."""


def is_random_part(experiments: Experiments, variant: Variant, edit: Edit, after: Variant) -> bool:
    """Whether the sampler differs from a share of the update as random parts of this share do.

    Args:
        experiments: of the case.
        variant: before the edit.
        edit: the update times a factor.
        after: with the edit.

    Raises:
        EngineError: if the learner fails.
        BudgetSpentError: if the time budget is used up.
    """
    place, share = json.loads(edit[1])
    part, _, folder = str(place).partition("|")
    is_share = edit[0] == UPDATE_SCALE and not part and 0 < share < 1
    if not is_share or not experiments.is_loud(after.gap):
        return False
    setup = variant.setup
    edits = [
        (*setup.edits, (UPDATE_PART, json.dumps([f"random:{seed}|{folder}", share])))
        for seed in range(_PARTS)
    ]
    scores = experiments.score_edits(setup, edits)
    size = after.tokens.sampler_N.size
    drawn = [each[:size] for each in scores if each is not None]
    if len(drawn) < _PARTS:
        return False
    return resembles(after.tokens.sampler_N, after.tokens.learner_N, drawn, after.tokens.counted_N)


def resembles(sampler_N: Floats, line_N: Floats, drawn: list[Floats], counted_N: Flags) -> bool:
    """Whether one column differs from a line as several others do, in size and by tokens."""
    at_N = counted_N & np.isfinite(sampler_N) & np.isfinite(line_N)
    for each in drawn:
        at_N = at_N & np.isfinite(each)
    if not at_N.any():
        return False
    line_N = line_N[at_N]
    own_N = np.clip(sampler_N[at_N] - line_N, -_CLIP, _CLIP)
    drawn_MN = np.clip(np.stack([each[at_N] for each in drawn]) - line_N, -_CLIP, _CLIP)
    sizes_M = np.log(np.square(drawn_MN).mean(axis=1) + 1e-30)
    size = float(np.log(np.square(own_N).mean() + 1e-30))
    if not _is_among(size, sizes_M):
        return False
    squares_MN = np.square(drawn_MN)
    total_N = squares_MN.sum(axis=0)
    others_M = np.array([_correlation(each, total_N - each) for each in squares_MN])
    return _correlation(np.square(own_N), total_N) >= float(others_M.min()) - _spread(others_M)


def _is_among(value: float, values_M: Floats) -> bool:
    """Whether a value is within the range of others, widened by the range on both sides."""
    spread = _spread(values_M)
    return float(values_M.min()) - spread <= value <= float(values_M.max()) + spread


def _spread(values_M: Floats) -> float:
    return max(float(np.ptp(values_M)), _LEAST_SPREAD)


def _correlation(one_N: Floats, other_N: Floats) -> float:
    """The correlation of ranks; 0 where one is constant."""
    if one_N.size < 2:
        return 0.0
    one, other = (np.argsort(np.argsort(each)).astype(np.float64) for each in (one_N, other_N))
    return float(np.corrcoef(one, other)[0, 1])
