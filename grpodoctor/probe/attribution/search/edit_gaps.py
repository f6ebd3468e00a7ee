"""The gaps that edits of the learner leave on a few responses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from grpodoctor.probe.attribution.edit_effects import CLIP
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Flags, Floats, difference_gap
from grpodoctor.probe.attribution.variant import Variant

_TYPICAL_TIMES = 3.0
"""The same as a multiple of the median, if few tokens have another fault."""


class EditGaps:
    """Scores edits next to those of a setup, all of them with one load of the learner."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._setup = experiments, variant.setup
        self._folder, at = experiments.sub_sample(variant)
        self.target_N: Floats = variant.tokens.sampler_N[at]
        """The sampler's values."""
        self.base_N: Floats = variant.tokens.learner_N[at]
        """The learner's values without further edits."""
        self.counted_N = variant.tokens.counted_N[at]
        """Which tokens count."""

    def scores(self, edits: Sequence[Edit]) -> list[Floats | None]:
        """The learner's values with each edit; None for one that does not fit the model.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        every = [(*self._setup.edits, edit) for edit in edits]
        scores = self._experiments.score_edits(self._setup, every, self._folder)
        return [None if each is None else each[: self.target_N.size] for each in scores]

    def gap(self, learner_N: Floats | None) -> float:
        """The gap of the counted tokens; infinite without any."""
        if learner_N is None:
            return np.inf
        at_N = self.counted_N & np.isfinite(self.target_N) & np.isfinite(learner_N)
        return difference_gap(learner_N[at_N], self.target_N[at_N]) if at_N.any() else np.inf

    def of(self, edits: Sequence[Edit]) -> list[float]:
        """The gap that each edit leaves; infinite for one that does not fit the model."""
        return [self.gap(learner_N) for learner_N in self.scores(edits)]


def total_gap(learner_N: Floats, target_N: Floats, at_N: Flags) -> float:
    """The gap of some tokens, times their number; infinite if the learner has none for one."""
    if not at_N.any():
        return 0.0
    if not np.isfinite(learner_N[at_N]).all():
        return np.inf
    return difference_gap(learner_N[at_N], target_N[at_N]) * int(at_N.sum())


def regression(missing_N: Floats, moved_N: Floats, clip: float) -> tuple[float, float]:
    """Share of a change that leads to the target, and the share of the variance it explains."""
    at = np.isfinite(missing_N) & np.isfinite(moved_N)
    missing, moved = (np.clip(each[at], -clip, clip) for each in (missing_N, moved_N))
    cross, size, whole = float(missing @ moved), float(moved @ moved), float(missing @ missing)
    if size == 0 or whole == 0:
        return 0.0, 0.0
    return cross / size, cross**2 / (size * whole)


def contributions(effects: Sequence[Floats | None], missing_N: Floats) -> list[float]:
    """How much each of several effects contributes to a change, fitted together.

    Blocks of neighbouring layers have similar effects; alone, several explain the change.
    """
    known = [np.zeros_like(missing_N) if each is None else each for each in effects]
    if not known:
        return []
    columns = np.clip(np.stack(known, axis=1), -CLIP, CLIP)
    at = np.isfinite(missing_N) & np.isfinite(columns).all(axis=1)
    if at.sum() <= 2 * len(known):  # too few tokens for as many unknowns
        return [0.0] * len(known)
    columns, target = columns[at], np.clip(missing_N[at], -CLIP, CLIP)
    weights, *_ = np.linalg.lstsq(columns, target, rcond=None)
    return list(np.abs(weights) * columns.std(axis=0))


def typical_clip(missing_N: Floats) -> float:
    """A bound on |Δlogp| that keeps few tokens with another fault from dominating."""
    known_N = np.abs(missing_N[np.isfinite(missing_N)])
    return min(CLIP, _TYPICAL_TIMES * float(np.median(known_N))) if known_N.size else CLIP


def between(now: float, value: float, share: float) -> float:
    """The number at a share of the way, in logarithms where both are positive."""
    if now > 0 and value > 0:
        return math.exp(math.log(now) + share * (math.log(value) - math.log(now)))
    return now + share * (value - now)
