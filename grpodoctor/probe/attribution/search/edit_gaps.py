"""The gaps that edits of the learner leave on a few responses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from grpodoctor.probe.attribution.edit_effects import CLIP
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Flags, Floats, Integers, difference_gap
from grpodoctor.probe.attribution.variant import Variant

_TYPICAL_TIMES = 3.0
"""The same as a multiple of the median, if few tokens have another fault."""
_PART, _FEWEST_RESPONSES, _FEWEST_TOKENS = 0.2, 3, 5
"""Smallest part of the responses that is compared by itself: share, number, and tokens of each."""
_FITS = 0.9
"""Share of the variance that an effect must explain there: some responses always fit best."""


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


def part_regression(
    missing_N: Floats, moved_N: Floats, rows_N: Integers, clip: float
) -> tuple[float, float]:
    """`regression` in the fifth of the responses that fit best; zeros if they do not fit well.

    A second fault of other responses can carry most of the variance of all.

    Args:
        missing_N: the change that leads to the target.
        moved_N: the change of an edit.
        rows_N: response of each token.
        clip: upper bound on either change.
    """
    at_N = np.isfinite(missing_N) & np.isfinite(moved_N)
    missing_N, moved_N = (np.clip(each[at_N], -clip, clip) for each in (missing_N, moved_N))
    names_R, rows_N = np.unique(rows_N[at_N], return_inverse=True)
    cross_R, size_R, whole_R, count_R = (
        np.bincount(rows_N, terms_N, minlength=names_R.size)
        for terms_N in (missing_N * moved_N, moved_N**2, missing_N**2, np.ones_like(moved_N))
    )
    known_R = (size_R > 0) & (whole_R > 0) & (count_R >= _FEWEST_TOKENS)
    if known_R.sum() < 2 * _FEWEST_RESPONSES:
        return 0.0, 0.0
    cross_R, size_R, whole_R, count_R = (
        each[known_R] for each in (cross_R, size_R, whole_R, count_R)
    )
    order = np.argsort(-(cross_R**2) / (size_R * whole_R), kind="stable")
    covered_R = np.cumsum(count_R[order])
    count = max(int(np.searchsorted(covered_R, _PART * covered_R[-1])) + 1, _FEWEST_RESPONSES)
    cross, size, whole = (float(each[order[:count]].sum()) for each in (cross_R, size_R, whole_R))
    explained = cross**2 / (size * whole)
    return (cross / size, explained) if explained >= _FITS else (0.0, 0.0)


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
