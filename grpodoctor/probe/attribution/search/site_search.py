"""Generic edits of any module, for a gap that no edit of a known kind explains.

The other edits imitate faults that engines had. Here every module's output and input is a *site*,
with a small language of changes: factors, bounds, functions, orders of units, roundings, values of
another position. The stages grow in cost, and each one runs only if the gap is still open:

1. every site in all layers, and tokens in another order; the sites of the block whose effect has
   most in common with the gap come first,
2. a factor for each layer, fitted together by Gauss-Newton steps,
3. every site of single layers, at the places to which the gradients point.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.localisation.locate import located_once
from grpodoctor.probe.attribution.search.edit_search import (
    GENERIC,
    EditSearch,
    finite_or_nan,
)
from grpodoctor.probe.attribution.search.edit_trials import UNFIT, Trial, rounded_to
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
_PLACES = 3
"""Places of the gradients whose sites are tried in single layers."""


class SiteSearch(EditSearch):
    """A search that continues with generic edits."""

    def _generic(
        self, known: Sequence[Trial], families: Sequence[EditFamily], best: float
    ) -> list[Trial]:
        """The generic edits that leave much less of the gap than all others."""
        done, key = self.experiments.generic_searches, repr(self.variant.setup)
        if key not in done and len(done) >= _MOST_SEARCHES:
            return []
        done.add(key)
        within = [family for family in families if family.name in GENERIC]
        plain = [family for family in within if family.name != "site_scales"]
        first = self._nearest_blocks(known)
        inner = [family for family in plain if _block_of(family) in first]
        outer = [family for family in plain if family not in inner]
        trials: list[Trial] = []
        for part in (inner, outer):
            if not self._is_closed(trials):
                found = self._tried(part)
                self._refine(found, _REFINED)
                trials += found
        if not self._is_closed(trials):
            trials += self._of_layers([f for f in within if f.name == "site_scales"])
        if not self._is_closed(trials):
            found = self._tried(self._at_places(plain))
            self._refine(found, _REFINED)
            trials += found
        most = _LEAVES * min(self._gap(self._base), best)
        return [trial for trial in trials if trial.gaps and trial.best_gap <= most]

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

    def _at_places(self, plain: Sequence[EditFamily]) -> list[EditFamily]:
        """The sites of the single layers to which gradients point."""
        places = [fit.name for fit in located_once(self.experiments, self.variant).fits[:_PLACES]]
        chosen = [place.partition(".")[::2] for place in places if place[:1].isdigit()]
        chosen += [(place[6:], "") for place in places if place.startswith("layer ")]
        return [
            replace(family, attribute=f"{layer}:{family.attribute}")
            for layer, block in chosen
            for family in plain
            if family.name.startswith("site_")
            and not family.attribute.startswith("^")
            and (not block or _block_of(family) == block)
        ]

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
            if moved is None:
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
