"""Readings of whole responses: reward, correctness, length, staleness, advantage, entropy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from grpodoctor.measure.groups import UNCENTRED_RATE, Groups, uncentred_rate
from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import (
    Max,
    Mean,
    NotApplicable,
    Quantiles,
    Rate,
    Reading,
)

if TYPE_CHECKING:
    from grpodoctor.measure.batch import Flags, Floats, Integers, RolloutBatch

FORK_SHARE = 0.2
"""Share of tokens that count as forking tokens, those of highest entropy. Source: Beyond the 80/20
Rule, arXiv 2506.01939."""
_ALONE = NotApplicable("every group has one response")
_OF_TOKENS = NotApplicable(
    "the advantages of a response's tokens differ, so the bound does not apply"
)
_NO_CORRECT = "no response is correct"
_NO_INCORRECT = "every response is correct"
FIRST_RATIO_TOLERANCE = 1e-3
"""Distance of an importance ratio from 1 that rounding can cause: a hundred times the noise of a
float32 forward pass with other batch shapes, and a two-hundredth of the usual clip of 0.2."""


def fork_threshold(entropies_N: Floats) -> float:
    """Entropy above which a token is among the `FORK_SHARE` of highest entropy.

    The linearly interpolated quantile. `np.quantile` gives the same but takes five times as long.
    """
    ordered_N = np.sort(entropies_N)
    rank = (1 - FORK_SHARE) * (ordered_N.size - 1)
    below = int(rank)
    above = min(below + 1, ordered_N.size - 1)
    return float(ordered_N[below] + (rank - below) * (ordered_N[above] - ordered_N[below]))


def mean_over(values: Floats | Integers, chosen: Flags, empty: str) -> Reading:
    """Mean over the selected entries; not applicable with reason `empty` if there are none."""
    return Mean.of(values[chosen]) if chosen.any() else NotApplicable(empty)


def reward_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`reward/*` and `accuracy/train`."""
    readings: dict[str, Reading] = {
        "reward/mean": Mean.of(batch.rewards_B),
        "reward/std": _spread(batch.rewards_B),
    }
    if batch.truncated_B is not None:
        readings["reward/truncated"] = mean_over(
            batch.rewards_B, batch.truncated_B, "no response was truncated"
        )
    for name, values_B in batch.components.items():
        component = component_name(name)
        readings[f"reward/component/{component}/mean"] = Mean.of(values_B)
        readings[f"reward/component/{component}/std"] = _spread(values_B)
    if batch.correct_B is not None:
        readings["accuracy/train"] = Rate.of(batch.correct_B)
    return readings


def component_name(name: str) -> str:
    """A reward component's name as part of a metric name."""
    return name.replace("/", "_")


def _spread(values_B: Floats) -> Mean:
    """Population standard deviation of the finite entries, as a mean with one entry."""
    finite = values_B[np.isfinite(values_B)]
    return Mean.of([np.std(finite, dtype=np.float64)] if finite.size else [math.nan])


def length_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`length/*` except the gap within groups."""
    lengths_B = batch.lengths_B
    readings: dict[str, Reading] = {
        "length/mean": Mean.of(lengths_B),
        "length/p95": Quantiles.of(lengths_B),
        "length/max": Max.of(lengths_B, batch.sequence_ids),
    }
    if batch.truncated_B is not None:
        readings["length/truncated_rate"] = Rate.of(batch.truncated_B)
        readings["length/terminated_mean"] = mean_over(
            lengths_B, ~batch.truncated_B, "every response was truncated"
        )
    if batch.correct_B is not None:
        readings["length/correct"] = mean_over(lengths_B, batch.correct_B, _NO_CORRECT)
        readings["length/incorrect"] = mean_over(lengths_B, ~batch.correct_B, _NO_INCORRECT)
    return readings


def entropy_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`entropy/*` over the generated tokens; empty without recorded entropy."""
    if batch.entropy_BT is None or not batch.mask_BT.any():
        return {}
    entropies_N = batch.entropy_BT[batch.mask_BT]
    finite_N = entropies_N[np.isfinite(entropies_N)]
    if not finite_N.size:
        return {"entropy/mean": Mean.of(entropies_N)}
    readings: dict[str, Reading] = {
        "entropy/mean": Mean.of(entropies_N),
        "entropy/p10": Quantiles.of(finite_N),
        "entropy/fork_tokens": Mean.of(finite_N[finite_N >= fork_threshold(finite_N)]),
    }
    if batch.correct_B is not None:
        correct_N = np.repeat(batch.correct_B, batch.lengths_B)
        readings["entropy/correct"] = mean_over(entropies_N, correct_N, _NO_CORRECT)
        readings["entropy/incorrect"] = mean_over(entropies_N, ~correct_N, _NO_INCORRECT)
    return readings


def advantage_readings(batch: RolloutBatch, groups: Groups) -> dict[str, Reading]:
    """`advantage/*`; empty without advantages.

    The bound sqrt(G-1) holds for division by the population standard deviation. Division by the
    sample standard deviation (ddof 1) has the smaller bound (G-1)/sqrt(G), so it never exceeds
    sqrt(G-1) either.
    """
    mask_BT = batch.loss_tokens_BT
    if batch.advantages_BT is not None:
        magnitudes_B = np.where(mask_BT, np.abs(batch.advantages_BT), 0).max(axis=1)
        per_token_N = batch.advantages_BT[mask_BT]
        excess: Reading = _OF_TOKENS
    elif batch.advantages_B is not None:
        magnitudes_B = np.abs(batch.advantages_B)
        per_token_N = np.repeat(batch.advantages_B, mask_BT.sum(axis=1))
        excess = bound_excess(magnitudes_B, groups)
    else:
        return {}
    uncentred: dict[str, Reading] = {}
    if batch.advantages_BT is None and batch.advantages_B is not None:
        in_loss_B = mask_BT.sum(axis=1) > 0
        rate = uncentred_rate(groups, batch.advantages_B, batch.rewards_B, in_loss_B)
        uncentred = {UNCENTRED_RATE: rate}
    return uncentred | {
        "advantage/abs_max": Max.of(magnitudes_B, batch.sequence_ids),
        "advantage/bound_excess": excess,
        "advantage/positive_rate": Rate.of(per_token_N > 0),
        "advantage/zero_rate": Rate.of(per_token_N == 0),
    }


def bound_excess(magnitudes_B: Floats, groups: Groups) -> Reading:
    """The largest ratio of an advantage to the bound for its group's size."""
    sizes_B = groups.sizes_G[groups.index_B]
    several_B = sizes_B > 1
    bounded_B = magnitudes_B[several_B] / np.sqrt(sizes_B[several_B] - 1)
    return Mean.of([bounded_B.max()]) if bounded_B.size else _ALONE


def loss_mask_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`optimizer/environment_token_rate`; empty where the loss uses the mask of the responses."""
    if batch.loss_mask_BT is None:
        return {}
    in_loss = int(batch.loss_mask_BT.sum())
    foreign = int((batch.loss_mask_BT & ~batch.mask_BT).sum())
    why = "no token is in the loss"
    return {
        "optimizer/environment_token_rate": Rate(foreign, in_loss)
        if in_loss
        else NotApplicable(why)
    }


@with_errstate(over="ignore", invalid="ignore")
def staleness_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """`staleness/*` and `mismatch/first_ratio_off`: whether tokens came from this policy."""
    readings: dict[str, Reading] = {}
    if batch.staleness_B is not None:
        readings["staleness/mean"] = Mean.of(batch.staleness_B)
        readings["staleness/max"] = Max.of(batch.staleness_B, batch.sequence_ids)
    if batch.learner_logprobs_BT is not None and batch.old_logprobs_BT is not None:
        chosen_BT = batch.loss_tokens_BT
        log_ratio_N = batch.learner_logprobs_BT[chosen_BT] - batch.old_logprobs_BT[chosen_BT]
        close_N = np.abs(np.expm1(log_ratio_N)) <= FIRST_RATIO_TOLERANCE
        readings["mismatch/first_ratio_off"] = (
            Rate.of(~close_N) if close_N.size else NotApplicable("no token is in the loss")
        )
    return readings
