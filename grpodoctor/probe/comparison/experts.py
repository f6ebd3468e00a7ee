"""Compare the routing of tokens to experts between two engines or two checkpoints.

A token counts if both sides report its experts in every layer with any report. A flip is a
different set of experts in a layer, regardless of order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.experts import lost_experts, lost_readings
from grpodoctor.probe.contract import Shard
from grpodoctor.probe.engines.shards import read_pairs
from grpodoctor.probe.results.results import ExpertComparison, LayerFlips
from grpodoctor.vocabulary.values import (
    Mean,
    NotApplicable,
    Quantiles,
    Reading,
    merge_all,
    scalar,
)

Between = Literal["engine", "update"]

MARGIN_EDGES = (0.0, *(float(f"{10 ** (third / 3):.3g}") for third in range(-9, 7)))
"""Bins of the router margin in logits, three per decade; larger margins count in the last bin."""

_GAP_EDGES = np.logspace(-12, 3, 601)
"""Bins of |Δlogp|, forty per decade: Spearman's correlation treats values within 6 % as ties."""


@dataclass(frozen=True, slots=True)
class ExpertFindings:
    """A comparison of experts and its canonical readings."""

    comparison: ExpertComparison | None
    """None if no token has known experts on both sides."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """`experts/churn_*`, `experts/tokens_with_any_flip` and, if available, `experts/router_margin`;
    empty for models without experts and engines that do not report them."""


def compare_experts(before: Path, after: Path, *, between: Between = "update") -> ExpertFindings:
    """Compare the routing in two folders of scores of the same tokens.

    With `between="update"`, the folders belong to two checkpoints in one engine: the churn is due
    to the optimizer steps between them, as in the GSPO paper's figure (about a tenth of the experts
    after each step). Memory does not grow with the number of responses.

    Args:
        before: scores with `experts` from the sampler or the older checkpoint.
        after: scores from the learner or the newer checkpoint.
        between: whether the two sides are engines or checkpoints.

    Raises:
        EngineError: if a shard is missing or damaged, or the two have different tokens.
    """
    tally = ExpertTally(between)
    for left, right in read_pairs(before, after):
        tally.add(left, right)
    return tally.finish()


class ExpertTally:
    """Sums over the routing of the shards read so far.

    Args:
        between: whether the two sides are engines or checkpoints.
    """

    def __init__(self, between: Between = "engine") -> None:
        self._between: Between = between
        self._why_not = ""
        self._any = False
        self._asked = self._known = self._flipped = 0
        self._readings: dict[str, Reading] = {}
        self._layers: dict[int, _Layer] = {}
        self._gap_flipped, self._gap_kept = Mean.of([]), Mean.of([])
        self._joint = np.zeros((0, len(_GAP_EDGES) + 1), np.int64)
        self._margins = np.zeros((2, len(MARGIN_EDGES) - 1), np.int64)

    def add(self, before: Shard, after: Shard) -> None:
        """Add a shard of both sides."""
        self._asked += len(before.response_ids_N)
        first, second = before.experts_NLK, after.experts_NLK
        if first is None or second is None or not first.shape[2]:
            return
        if first.shape != second.shape:
            shapes = (
                f"{side.shape[1]} layers with {side.shape[2]} experts" for side in (first, second)
            )
            self._why_not = f"the two sides report {' and '.join(shapes)}"
            return
        self._any = True
        margin_NL = (
            before.router_margin_NL if after.router_margin_NL is None else after.router_margin_NL
        )
        with np.errstate(invalid="ignore"):
            gap_N = np.abs(after.logprobs_N.astype(np.float64) - before.logprobs_N)
        self._add_known(_Routing.of(first, second, gap_N, margin_NL))

    def _add_known(self, routing: _Routing) -> None:
        if not routing.lost_NL.size:
            return
        self._known += len(routing.lost_NL)
        changed = lost_readings(
            routing.lost_NL, routing.slots, between=self._between, names=routing.layers
        )
        self._readings = merge_all(self._readings, changed)
        flips_N = (routing.lost_NL > 0).sum(axis=1)
        self._flipped += int((flips_N > 0).sum())
        self._add_gaps(flips_N, routing.gap_N, len(routing.layers))
        for column, layer in enumerate(routing.layers):
            margin_N = None if routing.margin_NL is None else routing.margin_NL[:, column]
            kept = self._layers.setdefault(layer, _Layer(routing.slots))
            kept.add(routing.lost_NL[:, column], margin_N)
        if routing.margin_NL is not None:
            self._add_margins(routing.lost_NL > 0, routing.margin_NL)

    def _add_gaps(
        self, flips_N: NDArray[np.int64], gap_N: NDArray[np.float64], layers: int
    ) -> None:
        finite_N = np.isfinite(gap_N)
        flips_N, gap_N = flips_N[finite_N], gap_N[finite_N]
        self._gap_flipped = self._gap_flipped.merge(Mean.of(gap_N[flips_N > 0]))
        self._gap_kept = self._gap_kept.merge(Mean.of(gap_N[flips_N == 0]))
        if layers >= len(self._joint):
            more = np.zeros((layers + 1 - len(self._joint), self._joint.shape[1]), np.int64)
            self._joint = np.concatenate([self._joint, more])
        np.add.at(self._joint, (flips_N, np.searchsorted(_GAP_EDGES, gap_N)), 1)

    def _add_margins(self, flipped_NL: NDArray[np.bool_], margin_NL: NDArray[np.float32]) -> None:
        self._readings = merge_all(self._readings, {"experts/router_margin": Mean.of(margin_NL)})
        finite_NL = np.isfinite(margin_NL)
        bins = np.searchsorted(MARGIN_EDGES[1:-1], margin_NL[finite_NL], side="right")
        for row, chosen in enumerate((flipped_NL[finite_NL], ~flipped_NL[finite_NL])):
            self._margins[row] += np.bincount(bins[chosen], minlength=self._margins.shape[1])

    def finish(self) -> ExpertFindings:
        """The comparison over all shards."""
        if self._why_not:
            why = NotApplicable(self._why_not)
            return ExpertFindings(None, {f"experts/churn_{self._between}": why})
        if not self._any:
            return ExpertFindings(None)
        if not self._known:
            why = NotApplicable("no token has known experts on both sides")
            return ExpertFindings(None, {f"experts/churn_{self._between}": why})
        return ExpertFindings(self._comparison(), self._readings)

    def _comparison(self) -> ExpertComparison:
        layers = [self._layers[name].flips(name) for name in sorted(self._layers)]
        pairs = sum(layer.tokens for layer in self._layers.values())
        return ExpertComparison(
            tokens=self._known,
            coverage=self._known / self._asked,
            any_flip_rate=self._flipped / self._known,
            churn=scalar(self._readings[f"experts/churn_{self._between}"]) or 0.0,
            layers=tuple(layers),
            logprob_diff_flipped=scalar(self._gap_flipped),
            logprob_diff_kept=scalar(self._gap_kept),
            flips_to_gap=rank_correlation(self._joint),
            by_margin=self._by_margin(),
            agreement=1 - sum(layer.flipped for layer in self._layers.values()) / pairs,
        )

    def _by_margin(self) -> tuple[tuple[float, float, float, int], ...]:
        totals = self._margins.sum(axis=0)
        return tuple(
            (
                MARGIN_EDGES[at],
                MARGIN_EDGES[at + 1],
                float(self._margins[0, at] / totals[at]),
                int(totals[at]),
            )
            for at in np.flatnonzero(totals).tolist()
        )


@dataclass(frozen=True, slots=True)
class _Routing:
    """The tokens of a shard with known experts on both sides, in the reported layers."""

    layers: list[int]
    slots: int
    """Experts per token."""
    lost_NL: NDArray[np.int64]
    """Number of the first side's experts that the second side does not use."""
    gap_N: NDArray[np.float64]
    """|Δlogp|."""
    margin_NL: NDArray[np.float32] | None
    """The second side's margin, or the first's if the second reports none."""

    @classmethod
    def of(
        cls,
        before_NLK: NDArray[np.int16],
        after_NLK: NDArray[np.int16],
        gap_N: NDArray[np.float64],
        margin_NL: NDArray[np.float32] | None,
    ) -> Self:
        known_NL: NDArray[np.bool_] = np.all((before_NLK >= 0) & (after_NLK >= 0), axis=2)
        layers = np.flatnonzero(known_NL.any(axis=0))
        tokens = np.flatnonzero(known_NL[:, layers].all(axis=1)) if layers.size else layers
        chosen = np.ix_(tokens, layers)
        if margin_NL is not None:
            margin_NL = margin_NL[chosen] if margin_NL.shape == known_NL.shape else None
        lost_NL = lost_experts(before_NLK[chosen], after_NLK[chosen])
        return cls(layers.tolist(), before_NLK.shape[2], lost_NL, gap_N[tokens], margin_NL)


class _Layer:
    """Sums over the tokens of one layer."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.tokens = self.flipped = 0
        self._lost = 0
        self._margins = {True: Quantiles(), False: Quantiles()}

    def add(self, lost_N: NDArray[np.int64], margin_N: NDArray[np.float32] | None) -> None:
        """Add a shard's tokens."""
        flipped_N = lost_N > 0
        self.tokens += lost_N.size
        self.flipped += int(flipped_N.sum())
        self._lost += int(lost_N.sum())
        if margin_N is not None:
            for kind, sketch in self._margins.items():
                new = Quantiles.of(margin_N[flipped_N == kind])
                self._margins[kind] = sketch.merge(new)

    def flips(self, layer: int) -> LayerFlips:
        """The comparison over all shards."""
        return LayerFlips(
            layer,
            1 - self._lost / (self.tokens * self._slots),
            self.flipped / self.tokens,
            scalar(self._margins[True]),
            scalar(self._margins[False]),
        )


def rank_correlation(joint: NDArray[np.integer]) -> float | None:
    """Spearman's correlation of two binned quantities.

    Values in the same bin are ties and get the mean of their ranks.

    Args:
        joint: counts by bin, ascending along each axis.

    Returns:
        None if one quantity has only one bin.
    """
    total = joint.sum()
    ranks = []
    for axis in (1, 0):
        counts = joint.sum(axis=axis)
        ranks.append(np.cumsum(counts) - counts / 2 - total / 2)
    rows, columns = ranks
    spread = float(joint.sum(axis=1) @ rows**2) * float(joint.sum(axis=0) @ columns**2)
    if not spread:
        return None
    return float(rows @ joint @ columns) / float(np.sqrt(spread))
