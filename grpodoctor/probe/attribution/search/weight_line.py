"""Fits how far the learner's weights must be moved back towards earlier ones, as one number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.edits import UPDATE_SCALE
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.attribution.variant import Variant

_CLIP = 3.0
"""Upper bound on |Δlogp| per token."""
_RELATED = 0.15
"""Smallest correlation of a move's effect with the gap: a smaller one removes 2 % of the gap."""
_ROUNDS = 4
_CLOSE = 0.01
"""Relative change of the number that ends the fit."""
_DONE = 1e-3
"""Share of the gap that ends the fit."""
_FURTHER = 16.0
"""Factor of the first move if its effect is smaller than rounding."""


@dataclass(frozen=True, slots=True)
class LineFit:
    """The learner with its weights moved back."""

    path: Path
    multiple: float
    """Of the difference to the earlier weights: 0 are the learner's, 1 the earlier ones."""
    after: Variant
    beyond_temperature: float
    """Share of the differences' variance that the move explains and a temperature does not."""


def moved_back(experiments: Experiments, variant: Variant, path: Path, multiple: float) -> Variant:
    """The variant with the learner's weights moved towards earlier ones.

    Raises:
        EngineError: if the learner cannot compute with them.
        BudgetSpentError: if the time budget is used up.
    """
    edit = (UPDATE_SCALE, json.dumps([f"|{path}", 1.0 - multiple]))
    return experiments.vary(variant, edits=(*variant.setup.edits, edit))


def fitted_line(experiments: Experiments, variant: Variant, path: Path) -> LineFit | None:
    """The best move towards earlier weights; None if it has nothing in common with the gap.

    One pass shows the effect of the earlier weights themselves, which is nearly proportional to the
    move. So least squares give the number, and further passes refine it.

    Raises:
        EngineError: if the learner cannot compute with the earlier weights.
        BudgetSpentError: if the time budget is used up.
    """
    multiple, after = _first_move(experiments, variant, path)
    if abs(_correlation(variant, after)) < _RELATED:
        return None
    tried = {multiple: after}
    for _ in range(_ROUNDS):
        if after.gap <= _DONE * variant.gap:
            break
        fitted = multiple * _slope(variant, after)
        if not fitted > 0 or abs(fitted - multiple) <= _CLOSE * multiple:
            break
        multiple = fitted
        try:
            after = moved_back(experiments, variant, path, multiple)
        except EngineError:  # more updates than the optimizer has made
            break
        tried[multiple] = after
    best = min(tried, key=lambda number: tried[number].gap)
    return LineFit(path, best, tried[best], _beyond_temperature(variant, tried[best]))


def _first_move(experiments: Experiments, variant: Variant, path: Path) -> tuple[float, Variant]:
    """The earlier weights, or a longer move if they change no more than rounding does."""
    after = moved_back(experiments, variant, path, 1.0)
    if experiments.is_loud(_moved(variant, after)):
        return 1.0, after
    try:
        return _FURTHER, moved_back(experiments, variant, path, _FURTHER)
    except EngineError:
        return 1.0, after


def _moved(before: Variant, after: Variant) -> float:
    """The size of an effect, as the k3 of small differences."""
    _, effect_N = _columns(before, after)
    return float(np.square(effect_N).mean() / 2) if effect_N.size else 0.0


def _correlation(before: Variant, after: Variant) -> float:
    """What the effect of a move and the gap have in common: their cosine."""
    wanted_N, effect_N = _columns(before, after)
    sizes = float(np.linalg.norm(wanted_N) * np.linalg.norm(effect_N))
    return float(wanted_N @ effect_N) / sizes if sizes > 0 else 0.0


def _slope(before: Variant, after: Variant) -> float:
    """The multiple of a move that fits the gap best."""
    wanted_N, effect_N = _columns(before, after)
    square = float(effect_N @ effect_N)
    return float(wanted_N @ effect_N) / square if square > 0 else 0.0


def _beyond_temperature(before: Variant, after: Variant) -> float:
    """See `LineFit`. Training often makes a model surer, as a lower temperature does."""
    surplus_N = before.tokens.surplus_N
    wanted_N, effect_N = _columns(before, after)
    columns = [] if surplus_N is None else [np.nan_to_num(surplus_N[_at(before, after)])]
    known = _left(wanted_N, columns)
    return 1 - _left(wanted_N, [*columns, effect_N]) / known if known > 0 else 0.0


def _left(wanted_N: Floats, columns: list[Floats]) -> float:
    """The sum of squares that a regression on some columns leaves."""
    if not columns:
        return float(wanted_N @ wanted_N)
    table = np.stack(columns, axis=1)
    fitted, *_ = np.linalg.lstsq(table, wanted_N, rcond=None)
    rest_N = wanted_N - table @ fitted
    return float(rest_N @ rest_N)


def _at(before: Variant, after: Variant) -> np.ndarray:
    return before.tokens.finite_N & after.tokens.finite_N


def _columns(before: Variant, after: Variant) -> tuple[Floats, Floats]:
    """What the sampler differs by, and what the move changes, at the tokens that count."""
    at_N = _at(before, after)
    base_N = before.tokens.learner_N[at_N]
    wanted_N = np.clip(before.tokens.sampler_N[at_N] - base_N, -_CLIP, _CLIP)
    effect_N = np.clip(after.tokens.learner_N[at_N] - base_N, -_CLIP, _CLIP)
    return wanted_N, effect_N
