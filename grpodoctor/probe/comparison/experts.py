"""Which experts the tokens went to, in two engines or in two checkpoints.

A token counts where both sides tell of its experts in every layer that either tells of at all. A
flip is another set of experts in a layer, whatever their order.
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
"""Of the router's margin in logits, three bins a decade; a larger one counts for the last."""

_GAP_EDGES = np.logspace(-12, 3, 601)
"""Of |Δlogp|, forty bins a decade: Spearman's correlation from ranks within 6 % of each other."""


@dataclass(frozen=True, slots=True)
class ExpertFindings:
    """A comparison of experts and the canonical readings of it."""

    comparison: ExpertComparison | None
    """None where no token has its experts told on both sides."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """`experts/churn_*`, `experts/tokens_with_any_flip` and, where told, `experts/router_margin`;
    empty for models without experts and engines that do not tell."""


def compare_experts(before: Path, after: Path, *, between: Between = "update") -> ExpertFindings:
    """How routing differs between two folders of scores of the same tokens.

    With `between="update"` the folders are those of two checkpoints in one engine: the churn is
    that of the optimizer steps between them, as in the GSPO paper's figure (about a tenth of the
    experts after each). Memory does not grow with the number of responses.

    Args:
        before: scores with `experts`, of the sampler or of the older checkpoint.
        after: of the learner or of the newer checkpoint.
        between: what stands between the two.

    Raises:
        EngineError: if a shard is missing or damaged, or the two are not of the same tokens.
    """
    tally = ExpertTally(between)
    for left, right in read_pairs(before, after):
        tally.add(left, right)
    return tally.finish()


class ExpertTally:
    """All that is kept of the routing of shards that have gone by.

    Args:
        between: what stands between the two sides.
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
        """Take a shard of both sides."""
        self._asked += len(before.response_ids_N)
        first, second = before.experts_NLK, after.experts_NLK
        if first is None or second is None or not first.shape[2]:
            return
        if first.shape != second.shape:
            told = (
                f"{each.shape[1]} layers with {each.shape[2]} experts" for each in (first, second)
            )
            self._why_not = f"the two sides tell of {' and of '.join(told)}"
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
        """What there is to say at the end."""
        if self._why_not:
            why = NotApplicable(self._why_not)
            return ExpertFindings(None, {f"experts/churn_{self._between}": why})
        if not self._any:
            return ExpertFindings(None)
        if not self._known:
            why = NotApplicable("no token has its experts told on both sides")
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
    """The tokens of a shard whose experts both sides tell, in the layers that are told of."""

    layers: list[int]
    slots: int
    """Experts a token."""
    lost_NL: NDArray[np.int64]
    """Experts of the first side that are not among the second's."""
    gap_N: NDArray[np.float64]
    """|Δlogp|."""
    margin_NL: NDArray[np.float32] | None
    """The second side's, or the first's where only that tells."""

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
    """What is kept of one layer."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.tokens = self.flipped = 0
        self._lost = 0
        self._margins = {True: Quantiles(), False: Quantiles()}

    def add(self, lost_N: NDArray[np.int64], margin_N: NDArray[np.float32] | None) -> None:
        """Take a shard's tokens."""
        flipped_N = lost_N > 0
        self.tokens += lost_N.size
        self.flipped += int(flipped_N.sum())
        self._lost += int(lost_N.sum())
        if margin_N is not None:
            for kind, sketch in self._margins.items():
                new = Quantiles.of(margin_N[flipped_N == kind])
                self._margins[kind] = sketch.merge(new)

    def flips(self, layer: int) -> LayerFlips:
        """What there is to say at the end."""
        return LayerFlips(
            layer,
            1 - self._lost / (self.tokens * self._slots),
            self.flipped / self.tokens,
            scalar(self._margins[True]),
            scalar(self._margins[False]),
        )


def rank_correlation(joint: NDArray[np.integer]) -> float | None:
    """Spearman's correlation of two numbers from how often each pair of their bins occurs.

    Equal bins are ties and get the mean of their ranks.

    Args:
        joint: counts, one number's bins ascending along each axis.

    Returns:
        None where either number has no more than one bin.
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
