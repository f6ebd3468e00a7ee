"""Changes of a column of log-probabilities, and how to recognize them.

Each recognizer receives the column that may be changed, and the other column. It returns both
columns made comparable, or None without evidence in the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.ndimage import uniform_filter1d

from grpodoctor.probe.attribution.columns.column_changes import (
    NEARLY_WHOLE,
    Recognized,
    by_response,
    changed,
    distance,
    each_response,
    same_change,
)
from grpodoctor.probe.attribution.columns.reordered_columns import reordered
from grpodoctor.probe.attribution.tokens import Flags, Floats, Integers, Tokens
from grpodoctor.probe.attribution.variant import ColumnMap
from grpodoctor.support.numbers import count_of

_NEARLY_ALL = 0.995
_FACTORS = {"log2": 1 / np.log(2), "log10": 1 / np.log(10)}
_NEAR = 0.08
"""Relative difference within which a fitted factor may be that of a known unit."""
_ONE_FACTOR = 1 / 3
"""Spread of the ratios of two columns from which they have no factor in common. A base changes
every value by the same factor, so the ratios spread only as another fault moves the values: by up
to 0.22 in measured doubles, but by 0.48 and more where the median is close to a unit by chance."""
_UNITY = 0.02
_AT_EDGE = 0.01
"""Smallest share of tokens at a limit that makes it a clip."""
_SCALED = 0.99
_WIDTHS = (2, 3, 4, 5, 8, 16)


Recognizer = Callable[[Tokens, Floats, Floats], Iterator[Recognized]]


def recognized(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """All changes that may explain one column by the other."""
    for recognize in _RECOGNIZERS:
        yield from recognize(tokens, changed_N, other_N)


def _units(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    at = tokens.finite_N & (np.abs(other_N) > 0.05)
    if not at.any():
        return
    factor = float(np.median(changed_N[at] / other_N[at]))
    is_factor = _spread(changed_N[at] / other_N[at]) < _ONE_FACTOR
    for name, unit in _FACTORS.items():
        if is_factor and abs(factor / unit - 1) < _NEAR:
            yield _rescaled(tokens, f"logarithms to base {name[3:]}", changed_N, other_N, unit)
    # The inverse of a unit: the other column has it, and is recognized in its turn.
    is_inverse = any(abs(factor * unit - 1) < _NEAR for unit in _FACTORS.values())
    if factor <= 0 or abs(factor - 1) < _UNITY or is_inverse:
        return
    if _spread(changed_N[at] / other_N[at]) < _UNITY:
        found = _rescaled(tokens, f"scaled by {factor:.3g}", changed_N, other_N, factor)
        yield replace(found, cause="scaled-logprobs", least=_SCALED)


def _offset(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """One number added to all values, such as the logarithm of the number of ranks."""
    at = tokens.finite_N
    if not at.any():
        return
    added_N = (changed_N - other_N)[at]
    level = float(np.median(added_N))
    if not _MEASURABLE < abs(level) < _FARTHEST or _spread(added_N) > _UNITY:
        return
    ranks = np.exp(abs(level))
    named = f" = log {ranks:.0f}" if abs(ranks / round(ranks) - 1) < _UNITY else ""
    what = f"{'higher' if level > 0 else 'lower'} by {abs(level):.3g}{named} at every token"
    made = ColumnMap(lambda _, column_N: column_N - level)
    found = changed(tokens, "constant-offset", what, changed_N, other_N, made)
    yield replace(found, least=_SCALED)


_FARTHEST = 10.0
"""Largest number that is added: e^10 is more ranks, or parts of a vocabulary, than there are."""


def _scaled_each(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """A factor of its own in each response, such as one over the response's length."""
    at = tokens.finite_N & (np.abs(other_N) > _MEASURABLE)
    ratio_N = np.divide(changed_N, other_N, out=np.full(at.size, np.nan), where=at)
    factors_B = np.array([_middle(part) for part in by_response(tokens, ratio_N)])
    known = at & np.isfinite(factors_B)[tokens.rows_N] & (factors_B > 0)[tokens.rows_N]
    if known.sum() < _FEWEST_RATIOS or np.ptp(factors_B[np.isfinite(factors_B)]) < _UNITY:
        return
    relative_N = np.abs(ratio_N[known] / factors_B[tokens.rows_N][known] - 1)
    if np.quantile(relative_N, 0.75) > _UNITY:
        return
    is_length = np.nanmedian(np.abs(factors_B * tokens.lengths_B - 1)) < _UNITY
    what = "divided by the response's length" if is_length else "scaled by a factor per response"
    by_B = 1 / tokens.lengths_B if is_length else np.where(np.isfinite(factors_B), factors_B, 1.0)
    made = ColumnMap(lambda lengths_B, column_N: column_N / np.repeat(by_B, lengths_B), True)
    found = changed(tokens, "scaled-logprobs", what, changed_N, other_N, made)
    yield replace(found, least=_SCALED)


_MEASURABLE = 0.05
"""|log p| from which a ratio of two values is a number rather than rounding."""
_FEWEST_RATIOS = 50


def _middle(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size > 1 else np.nan


def _likeliest(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """The value of the likeliest token at each place, not that of the token that was drawn."""
    top_N = tokens.top_logprob_N
    if top_N is None or other_N is not tokens.learner_N:
        return
    made = ColumnMap(lambda _, column_N: column_N + (other_N - top_N), True)
    what = "those of the likeliest token at each place instead of the sampled one"
    found = changed(tokens, "likeliest-token", what, changed_N, other_N, made)
    yield replace(found, least=NEARLY_WHOLE)


def _listed(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """The last value of a list of the k likeliest tokens, for the tokens outside of it."""
    values_NM = tokens.likeliest_logprob_NM
    if values_NM is None or other_N is not tokens.learner_N:
        return
    ends = range(2, values_NM.shape[1] + 1)  # the likeliest token alone has a cause of its own
    errors = {k: distance(changed_N, np.maximum(other_N, values_NM[:, k - 1])) for k in ends}
    size = min(errors, key=errors.__getitem__, default=0)
    if size:
        least_N = values_NM[:, size - 1]
        made = ColumnMap(lambda _, column_N: np.maximum(column_N, least_N), True)
        what = f"those of the least likely of {size} listed tokens where the token is not listed"
        found = same_change(tokens, "top-logprobs", what, changed_N, other_N, made)
        yield replace(found, least=NEARLY_WHOLE)


def _repeated(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """The value of a run's first token for the whole run, as for tokens accepted in one step."""
    steps_N = np.abs(np.diff(other_N)) > _MEASURABLE
    pairs_N = (np.diff(tokens.rows_N) == 0) & tokens.finite_N[1:] & tokens.finite_N[:-1] & steps_N
    equal_N = np.diff(changed_N) == 0
    if not pairs_N.any() or not _OFTEN < equal_N[pairs_N].mean() < _NEARLY_ALL:
        return
    is_first_N = np.concatenate([[True], (np.diff(tokens.rows_N) != 0) | ~equal_N])
    first_N = np.maximum.accumulate(np.where(is_first_N, np.arange(is_first_N.size), 0))
    made = ColumnMap(lambda _, column_N: column_N[first_N], True)
    what = "repeated for the tokens after the first one of a run"
    found = same_change(tokens, "repeated-values", what, changed_N, other_N, made)
    yield replace(found, least=NEARLY_WHOLE)


_OFTEN = 0.2
"""Share of pairs of tokens with exactly equal values, where the other side's differ, that makes
repetition: float32 values of two tokens are hardly ever equal."""


def _rescaled(
    tokens: Tokens, what: str, changed_N: Floats, other_N: Floats, factor: float
) -> Recognized:
    made = ColumnMap(lambda _, column_N: column_N / factor)
    return changed(tokens, "log-base", what, changed_N, other_N, made)


def _spread(values: Floats) -> float:
    """Half the width of the middle half, relative to the median."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float((high - low) / (2 * abs(middle))) if middle else np.inf


def _rounded(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    at = tokens.finite_N & (changed_N < 0)
    for digits in range(5):
        if _is_whole(changed_N[at] * 10**digits) and not _is_whole(other_N[at] * 10**digits):
            what = f"rounded to {digits} decimals"
            made = ColumnMap(partial(_to_decimals, digits))
            yield same_change(tokens, "rounding", what, changed_N, other_N, made)
            return
    for digits in range(1, 5):
        grid, other = np.exp(changed_N[at]) * 10**digits, np.exp(other_N[at]) * 10**digits
        if _is_whole(grid) and not _is_whole(other):
            least = float(np.exp(changed_N[at]).min())
            made = ColumnMap(partial(_to_decimals_of_probabilities, digits, least))
            what = f"logarithms of probabilities rounded to {digits} decimals"
            yield same_change(tokens, "rounding", what, changed_N, other_N, made)
            return


def _to_decimals(digits: int, _: Integers, column_N: Floats) -> Floats:
    return np.round(column_N, digits)


def _to_decimals_of_probabilities(
    digits: int, least: float, _: Integers, column_N: Floats
) -> Floats:
    return np.asarray(np.log(np.maximum(np.round(np.exp(column_N), digits), least)))


def _is_whole(values: Floats) -> bool:
    """Whether nearly all numbers are whole up to float32 rounding."""
    if values.size == 0:
        return False
    tolerance = 4e-7 * np.maximum(np.abs(values), 1.0) + 1e-4
    return bool((np.abs(values - np.round(values)) < tolerance).mean() > _NEARLY_ALL)


def _stored(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    at = tokens.finite_N & (changed_N != 0)
    for name, store in (("bfloat16", _as_bfloat16), ("float16", _as_float16)):
        kept, others = changed_N[at], other_N[at]
        same = (store(kept) == kept.astype(np.float32)).mean() if kept.size else 0.0
        if same > _NEARLY_ALL and (store(others) == others.astype(np.float32)).mean() < 0.5:
            made = ColumnMap(partial(_stored_again, store))
            yield same_change(
                tokens, "storage-precision", f"stored in {name}", changed_N, other_N, made
            )
            return


def _stored_again(store: Callable[[Floats], np.ndarray], _: Integers, column_N: Floats) -> Floats:
    return np.asarray(store(column_N).astype(np.float64))


def _as_bfloat16(values: Floats) -> np.ndarray:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return np.asarray((rounded & np.uint32(0xFFFF0000)).view(np.float32))


def _as_float16(values: Floats) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def _averaged(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    long_B = tokens.lengths_B > 2
    if not long_B.any():
        return
    parts = by_response(tokens, changed_N)
    flat = [np.ptp(part) < 1e-6 * max(1.0, abs(part[0])) for part in parts if part.size > 2]
    if np.mean(flat) > _NEARLY_ALL:
        made = each_response(lambda part: np.full(part.size, part.mean()))
        what = "averages over each response"
        yield same_change(tokens, "averaging", what, changed_N, other_N, made)
        return
    rough, other_rough = (_roughness(tokens, column_N) for column_N in (changed_N, other_N))
    for width in _WIDTHS:
        if rough > other_rough * (1 + 1 / width) / 2:  # 1 / width is expected
            continue
        for origin, words in (((width - 1) // 2, "tokens up to each"), (0, "tokens around each")):
            made = each_response(partial(_smooth, width, origin))
            what = f"averages over {width} {words} token"
            yield same_change(tokens, "averaging", what, changed_N, other_N, made)


def _roughness(tokens: Tokens, column_N: Floats) -> float:
    """Mean square of the steps within responses, over twice the variance; 1 for unrelated values.

    Means over w tokens have 1 / w of it. Any column is closer to the mean of noisy values than to
    the values, so the averages must show in the column that contains them.
    """
    same_N = np.diff(tokens.rows_N) == 0
    at = same_N & tokens.finite_N[1:] & tokens.finite_N[:-1]
    spread = 2 * float(np.var(column_N[tokens.finite_N])) if at.any() else 0.0
    return float(np.square(np.diff(column_N)[at]).mean()) / spread if spread else 1.0


def _smooth(width: int, origin: int, values: Floats) -> Floats:
    return np.asarray(uniform_filter1d(values, width, mode="nearest", origin=origin))


def _summed(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    parts = by_response(tokens, changed_N)
    if all((np.diff(part) <= 1e-5).all() for part in parts):
        made = each_response(lambda part: np.diff(part, prepend=0.0))
        what = "sums over the tokens so far"
        yield changed(tokens, "cumulative", what, changed_N, other_N, made)


def _clipped(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    at = tokens.finite_N
    if not at.any():
        return
    for edge, limit, words in (
        (changed_N[at].min(), np.maximum, "below"),
        (changed_N[at].max(), np.minimum, "above"),
    ):
        equal = np.abs(changed_N[at] - edge) < 1e-6 * max(1.0, abs(edge))
        is_far = words == "below" and edge < _FAR_EDGE and equal.sum() >= _TIES
        if (equal.mean() > _AT_EDGE or is_far) and edge < 0:
            what = f"clipped {words} at {edge:.3g}"
            made = ColumnMap(partial(_limited, limit, float(edge)))
            yield same_change(tokens, "clipping", what, changed_N, other_N, made)


_TIES = 3
"""Tokens with exactly the lowest value: far from 0, unrelated values are never equal."""
_FAR_EDGE = -1.0


def _constant(tokens: Tokens, changed_N: Floats, other_N: Floats) -> Iterator[Recognized]:
    """One number in place of the values of some tokens: none was reported, or these were forced.

    End tokens have a cause of their own, and a limit clips all values beyond it.
    """
    at = tokens.finite_N & (np.abs(changed_N - other_N) > _MEASURABLE) & ~tokens.last_N
    if at.sum() < _FEWEST_EQUAL:
        return
    numbers, counts = np.unique(changed_N[at], return_counts=True)
    number = float(numbers[np.argmax(counts)])
    at &= changed_N == number
    if at.sum() < _FEWEST_EQUAL or _is_limit(tokens, number, changed_N):
        return
    made = ColumnMap(lambda _, column_N: np.where(changed_N == number, number, column_N), True)
    is_forced = number == 0 and _is_unlikely(tokens, at)
    cause = "forced-token" if is_forced else "missing-logprobs"
    what = f"{number:g} at {_places(tokens, at)}, whatever the other side's are"
    yield same_change(tokens, cause, what, changed_N, other_N, made)


_FEWEST_EQUAL = 8
"""Tokens with exactly the same value, where the other side's differ from it."""


def _is_limit(tokens: Tokens, number: float, changed_N: Floats) -> bool:
    """Whether a number is an end of the column, not far from the other values as -9999 is."""
    known = np.isfinite(changed_N)
    if np.ptp(changed_N[tokens.finite_N]) > 0:  # otherwise these tokens have nothing but the number
        known &= tokens.finite_N
    others = changed_N[known & (changed_N != number)]
    if number >= 0 or not others.size:
        return False
    is_near = others.min() - number <= np.ptp(others)
    return bool(number > others.max() or (number < others.min() and is_near))


_UNLIKELY = -4.0
"""Standard errors of log p + entropy, whose mean is 0 for tokens drawn from the learner."""


def _is_unlikely(tokens: Tokens, at: Flags) -> bool:
    """Whether some tokens are less likely in the learner than tokens that are drawn from it."""
    if tokens.surplus_N is None:
        return False
    terms = tokens.surplus_N[at & np.isfinite(tokens.surplus_N)]
    size = float(np.sqrt(np.square(terms).sum()))
    return size > 0 and float(terms.sum()) / size < _UNLIKELY


def _places(tokens: Tokens, at: Flags) -> str:
    """The tokens in words."""
    places = np.unique(tokens.positions_N[at])
    if places.size == 1:
        place = int(places[0])
        return "the first token" if place == 0 else f"token {place + 1} of a response"
    return count_of(int(at.sum()), "token")


def _limited(
    limit: Callable[[Floats, float], Floats], edge: float, _: Integers, column_N: Floats
) -> Floats:
    return limit(column_N, edge)


def applied(tokens: Tokens, sampler_N: Floats, learner_N: Floats) -> Tokens:
    """The tokens with comparable columns."""
    return replace(tokens, sampler_N=sampler_N, learner_N=learner_N)


_RECOGNIZERS: tuple[Recognizer, ...] = (
    _units, _offset, _scaled_each, _likeliest, _listed, _repeated, _rounded, _stored, _averaged,
    _summed, _constant, _clipped, reordered,
)  # fmt: skip
