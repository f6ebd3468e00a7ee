"""What the usual corrections and clips would do to these tokens in training.

With w the learner's over the sampler's probability of a token, a correction cuts off or drops what
is too far from 1. Here is how many tokens or responses each would act on, and which share of the
weights would be lost by it. The formulas are those of `grpodoctor recipe`, section corrections
and losses, at the settings that papers and frameworks use; a test holds both together.
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
    """What it acts on."""
    judged: Literal["token", "product", "geometric", "prob_diff"]
    """The weight of a token, of a response as a product or as a geometric mean; or |Δp|."""
    act: Literal["truncate", "mask", "clip"]
    """Weights above the bound become the bound; what is out of bounds is dropped; or a gradient
    stops on one side, which side depending on the sign of the advantage."""
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
    """Counts what each of `EFFECTS` acts on."""

    def __init__(self) -> None:
        self._counts = {effect.name: np.zeros(5) for effect in EFFECTS}
        """Judged, below, above, sum of the weights, sum of what is left of them."""

    def add(self, pair: ShardPair) -> None:
        """Take a shard's finite tokens."""
        starts, sizes = pair.tokens.starts, _sizes(pair)
        log_N = pair.tokens.log_ratio_N
        sums = np.add.reduceat(log_N, starts)
        judged: dict[str, Values] = {
            "token": _weights(log_N),
            "product": _weights(sums),
            "geometric": _weights(sums / sizes),
            "prob_diff": pair.prob_diff_N,
        }
        per_response = np.add.reduceat(judged["token"], starts)
        for effect in EFFECTS:
            values = judged[effect.judged]
            # A geometric mean says whether a response is used; its tokens keep their own weights.
            weights = per_response if effect.judged == "geometric" else values
            self._counts[effect.name] += _counted(effect, values, weights)

    def shares(self) -> dict[str, float]:
        """`Comparison.effects`: by name the share acted on.

        Where the correction has weights, `<name>/lost` is the share of their sum that goes; a clip
        with two bounds is told by `<name>/low` and `<name>/high` too. Which half of a clip's share
        loses its gradient depends on the signs of the advantages.
        """
        shares: dict[str, float] = {}
        for name, (count, below, above, before, after) in self._counts.items():
            if not count:
                continue
            effect = BY_NAME[name]
            shares[name] = float((below + above) / count)
            if effect.act != "clip":
                # Of long responses that the learner thinks impossible no weight is left at all.
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
    left: Callable[[], Values] = {
        "truncate": lambda: np.minimum(weights, effect.high),
        "mask": lambda: np.where(below | above, 0.0, weights),
        "clip": lambda: weights,
    }[effect.act]
    sums = (float(each.sum()) for each in (weights, left()))
    return np.array([len(values), below.sum(), above.sum(), *sums])
