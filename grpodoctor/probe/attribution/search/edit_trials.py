"""One family of what-if edits in a search: the values that were tried, and which to try next."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.tokens import Floats

_GUESSES = 3
"""Numbers of the regression that are tried per round, those that explain most first."""
_DISTINCT = 4
"""Significant digits in which two suggested numbers must differ."""
_FLAT = 0.01
"""Relative difference between the gaps around the best number below which refining it ends: the
smallest gap is hardly smaller."""
_NEXT_TO = 0.02
"""Distance of a usual value from the best one, relative to the change that the best one makes."""
_TAKEN_UP = 1.5
"""Factor by which the gap at that usual value may exceed the smallest one."""
_NEARER, _NEARER_DIGITS = 0.7, 3
"""Share of the smallest tried change up to which a suggested number is nearer than the tried ones,
and its significant digits."""
UNFIT = 1e9
"""The gap of an edit that does not fit the model."""


@dataclass(slots=True)
class Trial:
    """A family with the values that were tried, and their gaps."""

    family: EditFamily
    gaps: dict[str, float] = field(default_factory=dict)
    """By the value as JSON."""
    merit: float = 0.0
    """Share of the gap that the best value removes; for numbers at least the share of the variance
    that it explains, because a small deviation leaves a larger gap at a far value."""
    common: float = 0.0
    """Largest share of the variance that the effect of a value explains, up to a factor."""
    nearest: Any = None
    """The value with that effect."""
    effect_N: Floats | None = None
    """What a block's absence does to the log-probabilities."""
    guesses: list[tuple[float, float]] = field(default_factory=list)
    """Shares of the variance that the regression explains, and the numbers that it suggests."""

    @property
    def best(self) -> Any:
        """The value with the smallest gap."""
        return json.loads(min(self.gaps, key=lambda value: self.gaps[value]))

    @property
    def likeliest(self) -> Any:
        """The best value; a usual one next to it that leaves hardly more of the gap.

        A number that was fitted next to another fault has taken up a part of that fault.
        """
        best, now = self.best, self.family.now
        if self.family.kind != "number" or now is None:
            return best
        near = [
            value
            for value in self.family.values
            if abs(value - best) <= _NEXT_TO * abs(best - now)
            and self.gaps.get(json.dumps(value), UNFIT) <= _TAKEN_UP * self.best_gap
        ]
        return min(near, key=lambda value: self.gaps[json.dumps(value)], default=best)

    @property
    def best_gap(self) -> float:
        """The smallest gap."""
        return min(self.gaps.values())


@dataclass(frozen=True, slots=True)
class NearerNumber:
    """A number between the present one and those that were tried."""

    value: float
    explained: float
    """Share of the gap's variance that the effect of the tried number explains."""


def nearer_number(trial: Trial) -> NearerNumber | None:
    """The number that the regression suggests, if it changes much less than those tried."""
    now = trial.family.now
    if trial.family.kind != "number" or now is None or not trial.guesses:
        return None
    explained, guess = max(trial.guesses, key=itemgetter(0))
    least = min((abs(value - now) for value, _ in _points(trial)), default=0.0)
    if abs(guess - now) >= _NEARER * least:
        return None
    return NearerNumber(rounded_to(guess, _NEARER_DIGITS), explained)


def refined_numbers(losses: Mapping[float, float]) -> list[float]:
    """Numbers around the one with the smallest loss that were not tried yet, by interpolation."""
    trial = Trial(EditFamily("", (), "number"))
    trial.gaps = {json.dumps(value): loss for value, loss in losses.items()}
    return refined_values(trial)


def refined_values(trial: Trial) -> list[float]:
    """Values around the best one that were not tried yet."""
    points = _points(trial)
    if len(points) < 2:
        return []
    values = [value for value, _ in points]
    best = min(range(len(points)), key=lambda at: points[at][1])
    is_log = values[0] > 0
    axis = [math.log(value) if is_log else value for value in values]
    low = axis[best - 1] if best else 2 * axis[0] - axis[1]
    high = axis[best + 1] if best + 1 < len(axis) else 2 * axis[-1] - axis[-2]
    inner = [
        axis[best] + (end - axis[best]) * part for end in (low, high) for part in (1 / 3, 2 / 3)
    ]
    inner += _vertex(axis, [gap for _, gap in points], best)
    new = [math.exp(point) if is_log else point for point in inner]
    new += _suggested(trial)
    if trial.family.kind == "integer":
        whole = sorted({max(1, round(value)) for value in new})
        return [value for value in whole if json.dumps(value) not in trial.gaps]
    nice = [
        rounded_to(value, digits) for value in (new[4:] or [values[best]]) for digits in (1, 2, 3)
    ]
    fresh = dict.fromkeys(value for value in (*new, *nice) if math.isfinite(value))
    return [value for value in fresh if json.dumps(value) not in trial.gaps]


def is_flat(trial: Trial) -> bool:
    """Whether the gaps around the best number are hardly larger than the smallest one."""
    gaps = [gap for _, gap in _points(trial)]
    best = min(range(len(gaps)), key=gaps.__getitem__, default=0)
    if not 0 < best < len(gaps) - 1:
        return False
    return max(gaps[best - 1], gaps[best + 1]) - gaps[best] < _FLAT * gaps[best]


def _points(trial: Trial) -> list[tuple[float, float]]:
    """The numbers that fit the model in order, and their gaps."""
    return sorted((float(json.loads(v)), gap) for v, gap in trial.gaps.items() if gap < UNFIT)


def _suggested(trial: Trial) -> list[float]:
    """The best numbers of the regression, without those that hardly differ from each other."""
    ranked = sorted(trial.guesses, key=itemgetter(0), reverse=True)
    trial.guesses.clear()
    distinct: dict[float, float] = {}
    for _, guess in ranked:
        distinct.setdefault(rounded_to(guess, _DISTINCT), guess)
    return list(distinct.values())[:_GUESSES]


def _vertex(axis: Sequence[float], gaps: Sequence[float], best: int) -> list[float]:
    """The minimum of the parabola through the best point and its neighbors."""
    if not 0 < best < len(axis) - 1:
        return []
    (a, b, c), (fa, fb, fc) = axis[best - 1 : best + 2], gaps[best - 1 : best + 2]
    upper = (b - a) ** 2 * (fb - fc) - (b - c) ** 2 * (fb - fa)
    lower = (b - a) * (fb - fc) - (b - c) * (fb - fa)
    if lower == 0:
        return []
    point = b - upper / (2 * lower)
    return [point] if a < point < c else []


def rounded_to(value: float, digits: int) -> float:
    """A number with few significant digits: settings are seldom others."""
    return float(f"{value:.{digits - 1}e}") if value else 0.0
