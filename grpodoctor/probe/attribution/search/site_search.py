"""Generic edits of any module, for a gap that no edit of a known kind explains.

The other edits imitate faults that engines had. Here every module's output and input is a *site*,
with a small language of changes: factors, bounds, functions, orders of units, roundings, values of
another position. Every operation of the forward pass is another, whose operands, order and axes
change. The learner estimates the effect of all of them, in all layers and in single ones, to first
order. Only those whose effect has much in common with the gap are computed, each one with a pass:

1. the best of the estimates, a few of each place,
2. changes of order, axes and repetitions in all layers, whatever the estimate says of them,
3. further ones of the estimates,
4. a factor for each layer, fitted together by Gauss-Newton steps.

A learner without gradients tries its sites by passes alone. Both searches have a bound of passes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.search.edit_estimates import (
    EditEstimates,
    edit_estimates,
    families_of,
)
from grpodoctor.probe.attribution.search.edit_search import (
    GENERIC,
    EditSearch,
    finite_or_nan,
)
from grpodoctor.probe.attribution.search.edit_trials import UNFIT, Trial, rounded_to
from grpodoctor.probe.attribution.search.pair_search import ClosedPair, PairSearch
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.severity import EXACT

_CLIP = 3.0
"""Upper bound on |Δlogp| per token in a fit."""
_LEAVES = 0.5
"""Largest share of the gap, and of what the best other edit leaves, that a generic edit may leave.
Among a thousand of them, the best one imitates a part of any gap."""
_MOST_SEARCHES = 3
"""Generic searches of one gap. A search that starts again from other causes has many remainders, of
which most are those of an imitation."""
_REFINED = 3
_FITTED = 3
"""Sites whose factors per layer are fitted."""
_MOST_FACTORS = 384
"""Factors, of all sites together, whose effects are measured."""
_STEP = 0.1
"""Change of a factor by which its effect is measured."""
_STEPS = 8
"""Gauss-Newton steps."""
_LENGTHS = (1.0, 0.5, 0.2)
_RIDGE = 1e-3
"""Relative to the mean square of an effect."""
_DIGITS = (1, 2, 3)
MOST_PASSES = 500
"""Passes of one generic search; see `grpodoctor.probe.forecast`."""
_MOST_WITHOUT = 1200
"""The same of a learner that estimates nothing: about every site of all layers."""
_FIRST, _SECOND = 48, 128
"""Edits that are tried before and after those of order, axes and repetitions."""
_MOST_STRUCTURAL = 96
_LEAST = 0.3
"""Share of the gap from which factors by layer are fitted."""


class SiteSearch(EditSearch):
    """A search that continues with generic edits."""

    _left = MOST_PASSES
    """Passes that the generic edits may still take."""
    pair: ClosedPair | None = None
    """Two changes that close the gap together."""

    def _generic(
        self, known: Sequence[Trial], families: Sequence[EditFamily], best: float
    ) -> list[Trial]:
        """The generic edits that leave much less of the gap than all others."""
        done, key = self.experiments.generic_searches, repr(self.variant.setup)
        if key not in done and len(done) >= _MOST_SEARCHES:
            return []
        scaled = {family.attribute for family in families if family.name == "site_scale"}
        self.pair = PairSearch(self.experiments, self.variant, None).best()
        if self.pair is not None or not self.experiments.tries_generic:
            return []
        done.add(key)
        self._left = MOST_PASSES
        within = [family for family in families if family.name in GENERIC]
        try:
            estimates = self._estimates()
        except EngineError:  # such as a model that is divided over devices
            estimates, self._left = None, _MOST_WITHOUT
        if estimates is None:
            trials = self._by_passes(known, within)
        else:
            trials = self._by_estimates(estimates, within)
        if estimates is not None and not self._is_closed([*known, *trials]):
            self.pair = PairSearch(self.experiments, self.variant, estimates, scaled).best()
        most = _LEAVES * min(self._gap(self._base), best)
        return [trial for trial in trials if trial.gaps and trial.best_gap <= most]

    def _estimates(self) -> EditEstimates | None:
        if self._folder is None:
            return None
        return edit_estimates(
            self.experiments, self.variant, self._folder, self._target, self._base
        )

    def _by_estimates(self, estimates: EditEstimates, within: Sequence[EditFamily]) -> list[Trial]:
        """The edits whose estimated effect has most in common with the gap."""
        structural, ranked = (
            families_of(each) for each in (estimates.structural(), estimates.ranked())
        )
        used = [family for family in (*structural, *ranked) if self._is_used(family)]
        ranked = [f for f in ranked if f not in used]
        structural = [f for f in structural if f not in used][:_MOST_STRUCTURAL]
        trials: list[Trial] = []
        others = self._unestimated(within, estimates.sites)
        for part in (ranked[:_FIRST], structural, others, ranked[_FIRST:_SECOND]):
            if not self._is_closed(trials):
                found = self._tried_within(part)
                self._refine(found, _REFINED)
                trials += found
        if not self._is_closed(trials):
            chosen = [site for share, site in estimates.by_layer()[:_FITTED] if share > _LEAST]
            scales = {f.attribute: f for f in within if f.name == "site_scales"}
            fitted = [scales[site] for site in chosen if site in scales]
            trials += self._of_layers(fitted)
        return trials

    @staticmethod
    def _unestimated(within: Sequence[EditFamily], known: Set[str]) -> list[EditFamily]:
        """Orders of tokens, changes of several tensors, and of parameters that no call reads.

        Another order changes the embeddings of its tokens so much that no estimate holds.
        """
        orders = [family for family in within if family.name == "row_order"]
        found = [f for f in within if f.name == "site_change" and f.attribute not in known]
        found = [f for f in found if f.attribute.endswith("/weight")]
        return [*orders, *sorted(found, key=lambda family: "reversed" not in family.values)]

    def _by_passes(self, known: Sequence[Trial], within: Sequence[EditFamily]) -> list[Trial]:
        """All sites, with a pass for each, of a learner that allows no gradients."""
        plain = [family for family in within if family.name != "site_scales"]
        first = self._nearest_blocks(known)
        inner = [family for family in plain if _block_of(family) in first]
        outer = [family for family in plain if family not in inner]
        trials: list[Trial] = []
        for part in (inner, outer):
            if not self._is_closed(trials):
                found = self._tried_within(part)
                self._refine(found, _REFINED)
                trials += found
        if not self._is_closed(trials):
            trials += self._of_layers([f for f in within if f.name == "site_scales"])
        return trials

    def _tried_within(self, families: Sequence[EditFamily]) -> list[Trial]:
        """Try as many edits as passes are left."""
        affordable = []
        for family in families:
            self._left -= len(family.values)
            if self._left < 0:
                break
            affordable.append(family)
        return self._tried(affordable)

    def _is_closed(self, trials: Sequence[Trial]) -> bool:
        """Whether an edit leaves only rounding."""
        least = min((trial.best_gap for trial in trials if trial.gaps), default=UNFIT)
        return not self.experiments.is_loud(least)

    @staticmethod
    def _nearest_blocks(known: Sequence[Trial]) -> set[str]:
        """The names of the blocks whose scaled output has most in common with the gap."""
        blocks = [trial for trial in known if trial.family.name in ("layer_scale", "output_scale")]
        ranked = sorted(blocks, key=lambda trial: -trial.merit)
        return {trial.family.attribute.rpartition(".")[2] for trial in ranked[:1]}

    def _of_layers(self, families: Sequence[EditFamily]) -> list[Trial]:
        """Factors per layer of the sites at which they explain most of the gap."""
        effects: list[tuple[float, EditFamily, list[float]]] = []
        left = _MOST_FACTORS
        for family in families:
            factors = [float(one) for one in family.values[0]]
            left -= len(factors)
            if left < 0:
                break
            moved = self._effects(family, factors, self._base)
            if moved is not None:
                missing = self._clipped(self._target - self._base)
                effects.append((_explained(moved, missing), family, factors))
        ranked = sorted(effects, key=lambda each: -each[0])[:_FITTED]
        return [trial for _, family, factors in ranked if (trial := self._fitted(family, factors))]

    def _fitted(self, family: EditFamily, factors: list[float]) -> Trial | None:
        """The factors of a site that leave the smallest gap."""
        trial = Trial(family)
        base_N, gap = self._base, self._gap(self._base)
        for _ in range(_STEPS):
            moved = self._effects(family, factors, base_N)
            self._left -= len(factors) + len(_LENGTHS)
            if moved is None or self._left < 0:
                break
            step = _least_squares(moved, self._clipped(self._target - base_N))
            values = [[f + by * s for f, s in zip(factors, step, strict=True)] for by in _LENGTHS]
            scores = dict(zip(map(json.dumps, values), self._scored(family, values), strict=True))
            if not scores or min(self._note(trial, scores).values()) >= gap:
                break
            factors, base_N = trial.best, _of(scores, trial.best, base_N)
            gap = trial.best_gap
            if gap <= EXACT or not self.experiments.is_loud(gap):
                break
        if not trial.gaps:
            return None
        nice = [[rounded_to(f, digits) for f in trial.best] for digits in _DIGITS]
        self._note(trial, dict(zip(map(json.dumps, nice), self._scored(family, nice), strict=True)))
        trial.merit = 1 - trial.best_gap / self._gap(self._base)
        return trial

    def _note(self, trial: Trial, scores: dict[str, Floats | None]) -> dict[str, float]:
        """Add the gaps of some values to a trial; returns them."""
        gaps = {v: UNFIT if one is None else self._gap(one) for v, one in scores.items()}
        trial.gaps |= gaps
        return gaps

    def _scored(self, family: EditFamily, values: Sequence[Any]) -> list[Floats | None]:
        edits = [(*self.variant.setup.edits, family.edit(value)) for value in values]
        return self.experiments.score_edits(self.variant.setup, edits, self._folder)

    def _effects(
        self, family: EditFamily, factors: Sequence[float], base_N: Floats
    ) -> Floats | None:
        """The derivatives by each factor, (tokens, layers); None if the site does not fit."""
        values = [
            [f + _STEP * (at == n) for n, f in enumerate(factors)] for at in range(len(factors))
        ]
        scores = self._scored(family, values)
        if any(one is None for one in scores):
            return None
        size = self._base.size
        columns = [(one[:size] - base_N[:size]) / _STEP for one in scores if one is not None]
        return self._clipped(np.stack(columns, axis=1))

    @staticmethod
    def _clipped(values: Floats) -> Floats:
        return np.clip(np.nan_to_num(finite_or_nan(values)), -_CLIP, _CLIP)


def _of(scores: dict[str, Floats | None], value: Any, otherwise: Floats) -> Floats:
    found = scores.get(json.dumps(value))
    return otherwise if found is None else found[: otherwise.size]


def _least_squares(moved_NL: Floats, missing_N: Floats) -> Floats:
    """The step that explains most of a difference, with a small penalty on its length."""
    square = moved_NL.T @ moved_NL
    ridge = _RIDGE * (np.trace(square) / len(square) + 1e-300)
    solved: Floats = np.linalg.solve(square + ridge * np.eye(len(square)), moved_NL.T @ missing_N)
    return solved


def _explained(moved_NL: Floats, missing_N: Floats) -> float:
    """Share of a difference that some effects explain together."""
    left = missing_N - moved_NL @ _least_squares(moved_NL, missing_N)
    return 1 - float(left @ left) / (float(missing_N @ missing_N) + 1e-300)


def _block_of(family: EditFamily) -> str:
    """The block of a layer in which a site is: `self_attn` of `self_attn.k_proj/out`."""
    return family.attribute.partition("/")[0].partition(".")[0]
