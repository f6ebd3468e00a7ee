"""Whether a sampler's log-probabilities follow the learner's weights or earlier ones.

For tokens that the sampler generated, let `gap` be the sampler's log-probability minus the
learner's, and `change` the log-probability under earlier weights of the learner minus that under
its current weights. A sampler that still has the earlier weights shows `gap = change + noise`; one
that received the current weights shows `gap = noise`. The coefficient of `gap` on `change` is the
share of the change that the sampler lacks. It is seen long before the gap leaves the engines'
noise, because the noise does not point in the direction of the update.

An engine with coarser numbers can lean in that direction anyway, for example if an update sharpens
the distribution that the engine flattens. The share is therefore compared with that of an anchor:
tokens that the sampler generated when its weights were known to be right.

Shapes: R responses, T tokens, N tokens that count, G changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from grpodoctor.support.arrays import np, with_errstate

Floats = NDArray[Any]

SEGMENT = 32
"""Tokens of a response that count as one observation: rounding errors of neighbours are alike,
those of tokens this far apart are not."""
ERROR_RATE = 1e-4
"""Chance that one check of a delivered sync is taken for an undelivered one. A rule needs two
checks in a row, so it is wrong about a run of 10,000 checks with a chance of 1e-4 or so."""
PART_ERROR_RATE = 1e-2
"""The same for the name of a missing part, which only adds to a finding that is certain without."""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a change that the sampler lacks: 0 if it was delivered, 1 if not."""

    value: float
    error: float
    """Standard error, over segments of responses."""
    freedom: int
    """Segments, less the estimated numbers."""

    @property
    def low(self) -> float:
        """Lower bound, exceeded by chance with probability `ERROR_RATE`."""
        return self.value - self._width

    @property
    def high(self) -> float:
        """Upper bound."""
        return self.value + self._width

    @property
    def _width(self) -> float:
        from scipy.special import stdtrit

        return float(-stdtrit(self.freedom, ERROR_RATE)) * self.error

    def minus(self, anchor: Share) -> Share:
        """What exceeds the share of an anchor."""
        error = float(np.hypot(self.error, anchor.error))
        return Share(self.value - anchor.value, error, min(self.freedom, anchor.freedom))


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a sample that are finite on all sides."""

    keep_RT: NDArray[np.bool_]
    segments_N: NDArray[np.intp]

    @classmethod
    def of(cls, mask_RT: NDArray[Any], *scores_RT: Floats) -> Tokens:
        """Select the tokens of a mask for which all scores are finite."""
        keep_RT = mask_RT.astype(bool)
        for each in scores_RT:
            keep_RT = keep_RT & np.isfinite(each)
        rows_N, places_N = np.nonzero(keep_RT)
        keys_N = rows_N * (keep_RT.shape[1] // SEGMENT + 1) + places_N // SEGMENT
        return cls(keep_RT, np.unique(keys_N, return_inverse=True)[1])

    @property
    def segments(self) -> int:
        """The number of segments."""
        return int(self.segments_N.max()) + 1 if self.segments_N.size else 0

    def select(self, values_RT: Floats) -> Floats:
        """The values of the tokens, shape (N,)."""
        values_N: Floats = values_RT[self.keep_RT].astype(np.float64)
        return values_N


def shares_of(tokens: Tokens, gap_RT: Floats, changes_RT: Sequence[Floats]) -> list[Share] | None:
    """The share of each change that the gap contains, by least squares.

    Standard errors allow noise of any distribution that is independent between segments (Liang and
    Zeger 1986).

    Args:
        tokens: the tokens to use.
        gap_RT: sampler minus learner.
        changes_RT: earlier minus current weights of the learner, G of them.

    Returns:
        None if the changes are zero or cannot be distinguished with so few tokens.
    """
    fit = _fit(tokens, gap_RT, changes_RT)
    if fit is None:
        return None
    shares_G, residual_N, inverse_GG, design_NG = fit
    count, freedom = tokens.segments, tokens.segments - len(changes_RT)
    scores_CG = np.zeros((count, len(changes_RT)))
    np.add.at(scores_CG, tokens.segments_N, design_NG * residual_N[:, None])
    spread_GG = inverse_GG @ (scores_CG.T @ scores_CG) @ inverse_GG * count / freedom
    errors_G = np.sqrt(np.maximum(np.diag(spread_GG), 0.0))
    return [Share(float(a), float(e), freedom) for a, e in zip(shares_G, errors_G, strict=True)]


def unexplained(tokens: Tokens, gap_RT: Floats, changes_RT: Sequence[Floats]) -> float:
    """Mean of |gap| after the best fit of the changes, in nats."""
    fit = _fit(tokens, gap_RT, changes_RT)
    left_N = tokens.select(gap_RT) if fit is None else fit[1]
    return mean_size(left_N)


def mean_size(values_N: Floats) -> float:
    """Mean absolute value; 0 without values."""
    return float(np.abs(values_N).mean()) if values_N.size else 0.0


@with_errstate(over="ignore", invalid="ignore")
def _fit(
    tokens: Tokens, gap_RT: Floats, changes_RT: Sequence[Floats]
) -> tuple[Floats, Floats, Floats, Floats] | None:
    """Coefficients, residuals, inverse of the normal matrix, design."""
    if not changes_RT or tokens.segments <= len(changes_RT):
        return None
    design_NG = np.stack([tokens.select(each) for each in changes_RT], axis=1)
    gap_N = tokens.select(gap_RT)
    normal_GG = design_NG.T @ design_NG
    scale_G = np.sqrt(np.diag(normal_GG))
    if not (np.isfinite(normal_GG).all() and scale_G.all()):
        return None
    alike_GG = normal_GG / np.outer(scale_G, scale_G)
    if np.linalg.cond(alike_GG) > _SINGULAR:
        return None
    inverse_GG = np.linalg.inv(alike_GG) / np.outer(scale_G, scale_G)
    shares_G = inverse_GG @ (design_NG.T @ gap_N)
    return shares_G, gap_N - design_NG @ shares_G, inverse_GG, design_NG


_SINGULAR = 1e10
"""Condition number above which changes are taken as equal: a hundred thousand times alike."""


class MissingParts(NamedTuple):
    """The parts of a model that seem to have kept their earlier weights in the sampler."""

    partition: int
    """Index of the way in which the model was divided."""
    names: tuple[str, ...]


def missing_parts(
    tokens: Tokens, gap_RT: Floats, whole_RT: Floats, partitions: Sequence[Mapping[str, Floats]]
) -> MissingParts | None:
    """Name the parts whose earlier weights explain the gap.

    A hypothesis has no coefficient that is fitted; one is better than another if it leaves a
    smaller squared gap (Vuong 1989). Parts of one partition are added to none, and removed from all
    of them, while that makes it better. The result must be better than the whole model, and than
    each part of the other partitions.

    Args:
        tokens: the tokens to use.
        gap_RT: sampler minus learner.
        whole_RT: the change if the whole model had its earlier weights.
        partitions: the model divided in several ways, such as by layer and by kind of module; by
            part, the change if only this part had its earlier weights.

    Returns:
        None if no part stands out.
    """
    gap_N, whole_N = tokens.select(gap_RT), tokens.select(whole_RT)
    changes = [{name: tokens.select(each) for name, each in parts.items()} for parts in partitions]
    for number, own in enumerate(changes):
        added, left_N = _better_parts(tokens, gap_N, own)
        removed, kept_N = _better_parts(
            tokens, gap_N - whole_N, {name: -each for name, each in own.items()}
        )
        names = tuple(added)
        if removed and kept_N @ kept_N < left_N @ left_N:
            names, left_N = tuple(name for name in own if name not in removed), kept_N
        rivals = [gap_N - each for rest in changes if rest is not own for each in rest.values()]
        rivals.append(gap_N - whole_N)
        if names and all(_gain(tokens, each, left_N).low > 0 for each in rivals):
            return MissingParts(number, names)
    return None


def _better_parts(
    tokens: Tokens, gap_N: Floats, changes: Mapping[str, Floats]
) -> tuple[list[str], Floats]:
    """The parts that make a gap smaller, best first, and the gap that is left."""
    chosen: list[str] = []
    while len(chosen) < len(changes):
        gains = {
            name: _gain(tokens, gap_N, gap_N - each)
            for name, each in changes.items()
            if name not in chosen
        }
        best = max(gains, key=lambda name: gains[name].value)
        if not gains[best].low > 0:
            break
        chosen.append(best)
        gap_N = gap_N - changes[best]
    return chosen, gap_N


def explains_more(
    tokens: Tokens, gap_RT: Floats, part_RT: Floats, changes_RT: Sequence[Floats]
) -> bool:
    """Whether a part's change leaves less of a gap than the best fit of whole changes, for certain.

    An engine that flattens its distributions lacks a share of every change, which the fit finds.
    """
    fit = _fit(tokens, gap_RT, changes_RT)
    left_N = tokens.select(gap_RT) if fit is None else fit[1]
    return _gain(tokens, left_N, tokens.select(gap_RT - part_RT)).low > 0


class _Gain(NamedTuple):
    """Mean fall of the squared gap per segment, and its lower bound."""

    value: float
    low: float


def _gain(tokens: Tokens, before_N: Floats, after_N: Floats) -> _Gain:
    from scipy.special import stdtrit

    sums_C = np.zeros(tokens.segments)
    np.add.at(sums_C, tokens.segments_N, before_N**2 - after_N**2)
    if sums_C.size < 2:
        return _Gain(0.0, 0.0)
    value, error = float(sums_C.mean()), float(sums_C.std(ddof=1)) / sums_C.size**0.5
    return _Gain(value, value + float(stdtrit(sums_C.size - 1, PART_ERROR_RATE)) * error)
