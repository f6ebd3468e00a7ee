"""The effect of the usual corrections and clips on these tokens in training.

With w the ratio of the learner's to the sampler's probability of a token, a correction truncates or
masks weights that are far from 1. This module counts the tokens or responses that each correction
affects and the share of the weights that it removes. The formulas are those of `grpodoctor recipe`,
families corrections and losses, with the settings of papers and frameworks; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from grpodoctor.probe.comparison.bootstrap import LARGEST_LOG_WEIGHT
from grpodoctor.probe.comparison.pair import ShardPair

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Effect:
    """One correction or clip at one setting."""

    name: str
    """Kind and bounds, such as `tis_token/2`: the key in `Comparison.effects`."""
    title: str
    over: Literal["tokens", "responses"]
    """The unit that it acts on."""
    quantity: Literal["token", "product", "geometric", "prob_diff"]
    """The bounded quantity: a token's weight, a response's weight as product or geometric mean, or
    |Δp|."""
    act: Literal["truncate", "mask", "clip"]
    """`truncate`: weights above the bound become the bound. `mask`: values out of bounds are
    dropped. `clip`: the gradient stops on the side given by the sign of the advantage."""
    high: float
    low: float = 0.0
    source: str = ""


_YAO = "Yao et al. 2025"
_LIU = "Liu, Li et al. 2025, When Speed Kills Stability"

EFFECTS: tuple[Effect, ...] = (
    Effect("tis_token/2", "TIS per token, cap 2", "tokens", "token", "truncate", 2, source=_YAO),
    Effect("tis_token/8", "TIS per token, cap 8", "tokens", "token", "truncate", 8, source=_YAO),
    Effect("tis_sequence/3", "TIS per response, cap 3", "responses", "product", "truncate", 3,
           source=_LIU),
    Effect("mis_token/2", "MIS per token, cap 2", "tokens", "token", "mask", 2, source=_LIU),
    Effect("mis_sequence/3", "MIS per response, cap 3 (TRL's default)", "responses", "product",
           "mask", 3, source=_LIU),
    Effect("icepop/0.5_5", "IcePop, 0.5 to 5", "tokens", "token", "mask", 5, 0.5,
           "Ring-1T, arXiv 2510.18855"),
    Effect("geo_mask/0.99_1.01", "Geometric mask, 0.99 to 1.01", "responses", "geometric", "mask",
           1.01, 0.99, _LIU),
    Effect("geo_mask/0.999_1.001", "Geometric mask, 0.999 to 1.001 (verl's preset)", "responses",
           "geometric", "mask", 1.001, 0.999, _LIU),
    Effect("ppo_clip/0.2_0.28", "PPO's clip on sampler log-probabilities, 0.2 and 0.28", "tokens",
           "token", "clip", 1.28, 0.8, "DAPO, arXiv 2503.14476"),
    Effect("gspo_clip/0.0003_0.0004", "GSPO's clip on them, 3e-4 and 4e-4", "responses",
           "geometric", "clip", 1 + 4e-4, 1 - 3e-4, "GSPO, arXiv 2507.18071"),
    Effect("scalerl/5", "ScaleRL's and CISPO's cap on them, 5", "tokens", "token", "truncate", 5,
           source="ScaleRL, arXiv 2510.13786"),
    Effect("dppo_tv/0.15", "DPPO's total variation, 0.15", "tokens", "prob_diff", "clip", 0.15,
           source="DPPO, arXiv 2602.04879"),
)  # fmt: skip

BY_NAME: Mapping[str, Effect] = {effect.name: effect for effect in EFFECTS}


class EffectTally:
    """Counts the tokens or responses that each of `EFFECTS` affects."""

    def __init__(self) -> None:
        self._counts = {effect.name: np.zeros(5) for effect in EFFECTS}
        """Count, below, above, sum of the weights, sum of the remaining weights."""

    def add(self, pair: ShardPair) -> None:
        """Add a shard's finite tokens."""
        starts, sizes = pair.tokens.starts, _sizes(pair)
        log_N = pair.tokens.log_ratio_N
        sums = np.add.reduceat(log_N, starts)
        quantities: dict[str, Values] = {
            "token": _weights(log_N),
            "product": _weights(sums),
            "geometric": _weights(sums / sizes),
            "prob_diff": pair.prob_diff_N,
        }
        per_response = np.add.reduceat(quantities["token"], starts)
        for effect in EFFECTS:
            values = quantities[effect.quantity]
            # A geometric mean decides whether a response is used; tokens keep their own weights.
            weights = per_response if effect.quantity == "geometric" else values
            self._counts[effect.name] += _counted(effect, values, weights)

    def shares(self) -> dict[str, float]:
        """`Comparison.effects`: the affected share by name.

        For a correction with weights, `<name>/lost` is the removed share of their sum. For a clip
        with two bounds, `<name>/low` and `<name>/high` give the shares per side. The signs of the
        advantages decide which part of a clip's share loses its gradient.
        """
        shares: dict[str, float] = {}
        for name, (count, below, above, before, after) in self._counts.items():
            if not count:
                continue
            effect = BY_NAME[name]
            shares[name] = float((below + above) / count)
            if effect.act != "clip":
                # The weights of long responses that are impossible for the learner underflow to 0.
                if before:
                    shares[f"{name}/lost"] = max(0.0, float(1 - after / before))
            elif effect.low:
                shares[f"{name}/low"] = float(below / count)
                shares[f"{name}/high"] = float(above / count)
        return shares


def _sizes(pair: ShardPair) -> NDArray[np.int64]:
    return np.diff(pair.tokens.starts, append=len(pair.tokens.rows_N))


def _weights(log_weights: Values) -> Values:
    return np.exp(np.minimum(log_weights, LARGEST_LOG_WEIGHT))


def _counted(effect: Effect, values: Values, weights: Values) -> Values:
    below, above = values < effect.low, values > effect.high
    remaining: Callable[[], Values] = {
        "truncate": lambda: np.minimum(weights, effect.high),
        "mask": lambda: np.where(below | above, 0.0, weights),
        "clip": lambda: weights,
    }[effect.act]
    sums = (float(array.sum()) for array in (weights, remaining()))
    return np.array([len(values), below.sum(), above.sum(), *sums])
