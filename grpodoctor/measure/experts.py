"""Readings of a mixture of experts: which experts changed between two routings of one text."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import DataError
from grpodoctor.vocabulary.values import Mean, Rate, Reading


def churn_readings(
    before_NLK: NDArray[np.integer],
    after_NLK: NDArray[np.integer],
    *,
    between: Literal["update", "engine"],
) -> dict[str, Reading]:
    """Share of the activated experts that are others on the second side, overall and per layer.

    Per token and layer it is |before minus after| / K, whatever the order of the ids (GSPO, arXiv
    2507.18071, section 5.3; averaging over tokens and layers is our reading of it).

    Args:
        before_NLK: ids of the K experts of N tokens in L layers.
        after_NLK: the same tokens on the other side.
        between: `update`, the learner before and after an optimiser step; or `engine`, the sampler
            and the learner, which also gives the share of tokens with a change in any layer.

    Raises:
        DataError: if the two routings are not of the same tokens, layers and K.
    """
    if before_NLK.ndim != 3 or before_NLK.shape != after_NLK.shape:
        raise DataError(
            f"routings of shape {before_NLK.shape} and {after_NLK.shape} cannot be compared",
            remedy="give both as (tokens, layers, experts per token) of the same tokens",
        )
    metric = f"experts/churn_{between}"
    tokens, layers, per_token = before_NLK.shape
    lost_NL = np.empty((tokens, layers), dtype=np.int64)
    readings: dict[str, Reading] = {}
    for layer in range(layers):
        kept_NK = (before_NLK[:, layer, :, None] == after_NLK[:, layer, None, :]).any(-1)
        lost_NL[:, layer] = per_token - kept_NK.sum(-1)
        readings[f"{metric}/layer/{layer}"] = _share(lost_NL[:, layer], per_token)
    readings[metric] = _share(lost_NL, per_token)
    if between == "engine":
        readings["experts/tokens_with_any_flip"] = Rate.of(lost_NL.any(axis=1))
    return readings


def _share(lost: NDArray[np.int64], per_token: int) -> Mean:
    """The mean of lost / K, summed exactly: a seventh has no double."""
    return Mean(Fraction(int(lost.sum()), max(per_token, 1)), lost.size)
