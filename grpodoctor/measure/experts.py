"""Readings of a mixture of experts: load, router entropy, and changes between two routings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from grpodoctor.errors import DataError
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import Mean, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertBatch:
    """Routing of N response tokens of a step, in L layers with K experts per token.

    None means not captured. All arrays refer to the same predicted tokens.
    """

    experts: int
    """Experts per layer."""
    used_NLK: NDArray[np.integer]
    """Active experts in the learner at the start of the batch."""
    entropy_NL: NDArray[np.floating]
    """Router entropy, in nats."""
    margin_NL: NDArray[np.floating]
    """Router logit of the last selected expert minus that of the first one not selected."""
    sampler_NLK: NDArray[np.integer] | None = None
    """Active experts in the engine; negative where the engine did not report them."""
    chosen_NLK: NDArray[np.integer] | None = None
    """Experts that the routers selected before the updates, without replay."""
    chosen_after_NLK: NDArray[np.integer] | None = None
    """The same after the updates."""


def expert_readings(batch: ExpertBatch) -> dict[str, Reading]:
    """All `experts/*` readings except those of a replay; empty without tokens.

    Raises:
        DataError: if two routings have different tokens, layers or K.
    """
    if not batch.used_NLK.size:
        return {}
    loads_L = [_load(batch.used_NLK[:, layer], batch.experts) for layer in _layers(batch.used_NLK)]
    readings: dict[str, Reading] = {
        "experts/load_max_over_mean": Mean.of(loads_L),
        "experts/router_entropy": Mean.of(batch.entropy_NL),
        "experts/router_margin": Mean.of(batch.margin_NL),
    }
    for layer, load in enumerate(loads_L):
        readings[f"experts/load_max_over_mean/layer/{layer}"] = Mean.of([load])
        readings[f"experts/router_entropy/layer/{layer}"] = Mean.of(batch.entropy_NL[:, layer])
        readings[f"experts/router_margin/layer/{layer}"] = Mean.of(batch.margin_NL[:, layer])
    if batch.sampler_NLK is not None:
        reported_N = (batch.sampler_NLK >= 0).all(axis=(1, 2))
        if reported_N.any():
            readings |= churn_readings(
                batch.sampler_NLK[reported_N], batch.used_NLK[reported_N], between="engine"
            )
    if batch.chosen_NLK is not None and batch.chosen_after_NLK is not None:
        readings |= churn_readings(batch.chosen_NLK, batch.chosen_after_NLK, between="update")
    return readings


def _layers(routing_NLK: NDArray[np.integer]) -> range:
    return range(routing_NLK.shape[1])


def _load(used_NK: NDArray[np.integer], experts: int) -> float:
    """Tokens of the busiest expert over the mean of all experts, including idle ones."""
    counts_E = np.bincount(used_NK.ravel(), minlength=experts)
    return float(counts_E.max() / counts_E.mean())


def replay_readings(
    expected_L: NDArray[np.integer],
    present_L: NDArray[np.integer],
    obeyed_L: NDArray[np.integer],
) -> dict[str, Reading]:
    """`experts/replay_*`, overall and per layer.

    Args:
        expected_L: tokens to replay in each layer.
        present_L: those of them whose experts are known.
        obeyed_L: those of them that the layer routed to exactly these experts.
    """
    rates: dict[str, Callable[[slice], Rate]] = {
        "coverage": lambda layers: Rate(
            int(present_L[layers].sum()), int(expected_L[layers].sum())
        ),
        "agreement": lambda layers: Rate(int(obeyed_L[layers].sum()), int(present_L[layers].sum())),
        "fallback_rate": lambda layers: Rate(
            int((expected_L - present_L)[layers].sum()), int(expected_L[layers].sum())
        ),
    }
    readings: dict[str, Reading] = {}
    for name, rate in rates.items():
        readings[f"experts/replay_{name}"] = rate(slice(None))
        for layer in range(len(expected_L)):
            readings[f"experts/replay_{name}/layer/{layer}"] = rate(slice(layer, layer + 1))
    return readings


def churn_readings(
    before_NLK: NDArray[np.integer],
    after_NLK: NDArray[np.integer],
    *,
    between: Literal["update", "engine"],
    names: Sequence[int] | None = None,
) -> dict[str, Reading]:
    """Share of active experts that differ between two routings, overall and per layer.

    Per token and layer it is |before minus after| / K, independent of the order of the ids. Source:
    GSPO, arXiv 2507.18071, section 5.3; averaging over tokens and layers is our interpretation.

    Args:
        before_NLK: ids of the K experts of N tokens in L layers.
        after_NLK: the same tokens in the other routing.
        between: `update` for the learner before and after an optimizer step; `engine` for sampler
            and learner, which also gives the share of tokens with a change in any layer.
        names: layer numbers, if some layers of the model are left out.

    Raises:
        DataError: if the two routings are not of the same tokens, layers and K.
    """
    if before_NLK.ndim != 3 or before_NLK.shape != after_NLK.shape:
        raise DataError(
            f"routings of shape {before_NLK.shape} and {after_NLK.shape} cannot be compared",
            remedy="give both as (tokens, layers, experts per token) of the same tokens",
        )
    lost_NL = lost_experts(before_NLK, after_NLK)
    return lost_readings(lost_NL, before_NLK.shape[2], between=between, names=names)


def lost_readings(
    lost_NL: NDArray[np.int64],
    per_token: int,
    *,
    between: Literal["update", "engine"],
    names: Sequence[int] | None = None,
) -> dict[str, Reading]:
    """`churn_readings` from the counts of differing experts.

    Args:
        lost_NL: result of `lost_experts`.
        per_token: K.
        between: as for `churn_readings`.
        names: as for `churn_readings`.
    """
    metric = f"experts/churn_{between}"
    readings: dict[str, Reading] = {}
    for layer in range(lost_NL.shape[1]):
        name = layer if names is None else names[layer]
        readings[f"{metric}/layer/{name}"] = _share(lost_NL[:, layer], per_token)
    readings[metric] = _share(lost_NL, per_token)
    if between == "engine":
        readings["experts/tokens_with_any_flip"] = Rate.of(lost_NL.any(axis=1))
    return readings


def lost_experts(
    before_NLK: NDArray[np.integer], after_NLK: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Number of each token's experts in each layer that the second routing lacks, shape (N, L).

    Loops over slots: comparing all pairs of experts at once needs K times the memory.
    """
    kept_NLK = np.zeros(before_NLK.shape, dtype=bool)
    for slot in range(after_NLK.shape[2]):
        kept_NLK |= before_NLK == after_NLK[:, :, slot, None]
    lost_NL: NDArray[np.int64] = before_NLK.shape[2] - kept_NLK.sum(axis=2)
    return lost_NL


def _share(lost: NDArray[np.int64], per_token: int) -> Mean:
    """The mean of lost / K, summed exactly: 1/7 is not a float64."""
    return Mean(Fraction(int(lost.sum()), max(per_token, 1)), lost.size)
