"""Typed values that merge across micro-batches, ranks and shards.

Merging is associative and commutative and gives exactly the result of computing on the union. For
this, sums are exact fractions rather than floats, and quantiles come from a histogram with fixed
buckets rather than from an adaptive sketch.

A reading is a value, `Absent` (not logged) or `NotApplicable` (without meaning in this run). Zero
never stands for the latter two.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_MANTISSA_BITS = 53
_LOW_BITS = 26
_LOW_MASK = (1 << _LOW_BITS) - 1
_LOG_LARGEST = math.log(sys.float_info.max) - 1e-12


def exact_sum(values: NDArray[np.float64]) -> Fraction:
    """Sum finite doubles without rounding.

    Each double is an integer times a power of two. Integers with the same exponent are added in two
    halves, which are small enough that sums of 2**26 halves are exact in a double.

    Args:
        values: finite values, any shape, fewer than 2**26 of them per exponent.
    """
    if values.size == 0:
        return Fraction(0)
    mantissas, exponents = np.frexp(values.ravel())
    integers = np.ldexp(mantissas, _MANTISSA_BITS).astype(np.int64)
    lowest = int(exponents.min())
    bins = exponents - lowest
    high = np.bincount(bins, weights=(integers >> _LOW_BITS).astype(np.float64))
    low = np.bincount(bins, weights=(integers & _LOW_MASK).astype(np.float64))
    total = 0
    for shift in np.flatnonzero((high != 0) | (low != 0)).tolist():
        total += ((int(high[shift]) << _LOW_BITS) + int(low[shift])) << shift
    exponent = lowest - _MANTISSA_BITS
    return Fraction(total << exponent) if exponent >= 0 else Fraction(total, 1 << -exponent)


def _split_finite(values: ArrayLike) -> tuple[NDArray[np.float64], int]:
    flat = np.asarray(values, dtype=np.float64).ravel()
    finite = np.isfinite(flat)
    kept = flat if finite.all() else flat[finite]
    return kept, int(flat.size - kept.size)


def _to_float(total: Fraction | float) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, kept as sum and count.

    Non-finite entries are counted separately, so that one overflow among a hundred thousand tokens
    does not turn the mean of the others into NaN.
    """

    total: Fraction | float
    """A double is kept as one: it is exact, and a fraction takes ten times as long."""
    count: int
    nonfinite: int = 0

    @classmethod
    def of_number(cls, value: float) -> Self:
        """The same as `of([value])`."""
        return cls(value, 1) if math.isfinite(value) else cls(Fraction(0), 0, 1)

    @classmethod
    def of(cls, values: ArrayLike) -> Self:
        """Summarise `values` (any shape); non-finite entries are counted, not summed."""
        finite, nonfinite = _split_finite(values)
        return cls(exact_sum(finite), finite.size, nonfinite)

    def merge(self, other: Mean) -> Mean:
        """The mean over the union."""
        return Mean(
            Fraction(self.total) + Fraction(other.total),
            self.count + other.count,
            self.nonfinite + other.nonfinite,
        )

    @property
    def value(self) -> float:
        """The mean of the finite entries; NaN if there are none."""
        total, count = self.total, self.count
        if type(total) is float and count:  # as exact as the division of fractions, and faster
            return total / count
        if not count:
            return math.nan
        try:
            # Rounded correctly, like a division of fractions, and without its common divisor.
            numerator, denominator = total.as_integer_ratio()
            return numerator / (denominator * count)
        except OverflowError:
            return math.inf if total > 0 else -math.inf

    def to_json(self) -> Any:
        """`[total, count]`, followed by the number of non-finite entries if there are any.

        A total beyond the largest double is written as a text with its integer part.
        """
        total = _to_float(self.total)
        written = str(round(self.total)) if math.isinf(total) else total
        parts: list[float | int | str] = [written, self.count]
        return [*parts, self.nonfinite] if self.nonfinite else parts

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Inverse of `to_json`, up to the rounding of the total to a double."""
        total, count, nonfinite = (*data, 0)[:3]
        if not (isinstance(total, float) and math.isfinite(total)):
            # int() limits the digits of a text; Fraction("1e999999999") would not return.
            total = Fraction(int(total)) if isinstance(total, str) else Fraction(total)
        return cls(total, int(count), int(nonfinite))


class _NewMean:
    """The slots of a `Mean`, which may still be set."""

    __slots__ = ("count", "nonfinite", "total")

    def __init__(self, total: float) -> None:
        self.total, self.count, self.nonfinite = total, 1, 0


def single(number: float) -> Mean:
    """The same as `Mean(number, 1)`, for a finite number.

    A log has a million of them, and the constructor of a frozen class takes three times as long.
    """
    mean: Any = _NewMean(number)
    mean.__class__ = Mean
    return mean  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Rate:
    """The share of a counted population that has a property."""

    hits: int
    count: int
    nonfinite: ClassVar[int] = 0

    @classmethod
    def of(cls, flags: ArrayLike) -> Self:
        """Count the true entries of `flags` (any shape)."""
        array = np.asarray(flags, dtype=bool)
        return cls(int(array.sum()), array.size)

    def merge(self, other: Rate) -> Rate:
        """The rate over the union."""
        return Rate(self.hits + other.hits, self.count + other.count)

    @property
    def value(self) -> float:
        """Hits over count; NaN for an empty population."""
        return self.hits / self.count if self.count else math.nan

    def to_json(self) -> Any:
        """`[hits, count]`."""
        return [self.hits, self.count]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Inverse of `to_json`."""
        hits, count = data
        return cls(int(hits), int(count))


def _extreme_to_json(value: float, where: str | None) -> Any:
    return [value if math.isfinite(value) else str(value), where]


def _extreme_from_json(data: Any) -> tuple[float, str | None]:
    value, where = data
    return float(value), None if where is None else str(where)


@dataclass(frozen=True, slots=True)
class Max:
    """A maximum with the id of its sequence or tensor. NaN is ignored."""

    value: float
    where: str | None = None

    @property
    def nonfinite(self) -> int:
        """1 if an entry is infinite; that of an empty set is the other infinity."""
        return int(self.value == math.inf)

    @classmethod
    def of_number(cls, value: float) -> Self:
        """The same as `of([value])`."""
        return cls(-math.inf if math.isnan(value) else value)

    @classmethod
    def of(cls, values: ArrayLike, ids: list[str] | None = None) -> Self:
        """The largest entry of `values` (shape N) and its id; -inf for no values."""
        return cls(*_extreme(values, ids, sign=1.0))

    def merge(self, other: Max) -> Max:
        """The larger; of equal values, the one with the smaller id, so order does not matter."""
        return max(self, other, key=lambda extreme: (extreme.value, _reversed_text(extreme.where)))

    def to_json(self) -> Any:
        """`[value, where]`; an infinity is written as text, since JSON has none."""
        return _extreme_to_json(self.value, self.where)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Inverse of `to_json`."""
        return cls(*_extreme_from_json(data))


@dataclass(frozen=True, slots=True)
class Min:
    """A minimum with the id of its sequence or tensor. NaN is ignored."""

    value: float
    where: str | None = None

    @property
    def nonfinite(self) -> int:
        """1 if an entry is infinite; that of an empty set is the other infinity."""
        return int(self.value == -math.inf)

    @classmethod
    def of_number(cls, value: float) -> Self:
        """The same as `of([value])`."""
        return cls(math.inf if math.isnan(value) else value)

    @classmethod
    def of(cls, values: ArrayLike, ids: list[str] | None = None) -> Self:
        """The smallest entry of `values` (shape N) and its id; +inf for no values."""
        return cls(*_extreme(values, ids, sign=-1.0))

    def merge(self, other: Min) -> Min:
        """The smaller; of equal values, the one with the smaller id, so order does not matter."""
        return max(self, other, key=lambda extreme: (-extreme.value, _reversed_text(extreme.where)))

    def to_json(self) -> Any:
        """`[value, where]`; an infinity is written as text, since JSON has none."""
        return _extreme_to_json(self.value, self.where)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Inverse of `to_json`."""
        return cls(*_extreme_from_json(data))


def _extreme(values: ArrayLike, ids: list[str] | None, *, sign: float) -> tuple[float, str | None]:
    signed = sign * np.asarray(values, dtype=np.float64).ravel()
    signed = np.where(np.isnan(signed), -np.inf, signed)
    if signed.size == 0:
        return -sign * math.inf, None
    best = signed.max()
    if ids is None:
        return float(sign * best), None
    return float(sign * best), min(ids[i] for i in np.flatnonzero(signed == best))


def _reversed_text(text: str | None) -> tuple[int, ...]:
    """A sort key that reverses the order of texts; None sorts first."""
    return () if text is None else (*(-ord(letter) for letter in text), 1)


_LARGEST_BUCKET = 2**63
"""Bound of a bucket's number. Buckets beyond the doubles, from -37,220 to 35,486, are read as their
largest; a number of many digits would overflow."""


@dataclass(frozen=True)
class Quantiles:
    """A histogram with logarithmic buckets, from which quantiles are read.

    The buckets are those of DDSketch (Masson et al. 2019, arXiv 1908.10693). A quantile's relative
    error is at most `RELATIVE_ERROR`. The borders are fixed, so merging adds counts and is exact.
    """

    positive: Mapping[int, int] = field(default_factory=dict)
    negative: Mapping[int, int] = field(default_factory=dict)
    zeros: int = 0
    nonfinite: int = 0

    RELATIVE_ERROR = 0.01
    _LOG_GAMMA = math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))
    _LOG_MIDDLE = math.log(2 / (1 + math.exp(_LOG_GAMMA)))

    @classmethod
    def of(cls, values: ArrayLike) -> Self:
        """Count `values` (any shape) by bucket."""
        finite, nonfinite = _split_finite(values)
        return cls(
            cls._buckets(finite[finite > 0]),
            cls._buckets(-finite[finite < 0]),
            int((finite == 0).sum()),
            nonfinite,
        )

    @classmethod
    def _buckets(cls, magnitudes: NDArray[np.float64]) -> dict[int, int]:
        if magnitudes.size == 0:
            return {}
        indices = np.ceil(np.log(magnitudes) / cls._LOG_GAMMA).astype(np.int64)
        keys, counts = np.unique(indices, return_counts=True)
        return dict(zip(keys.tolist(), counts.tolist(), strict=True))

    @property
    def count(self) -> int:
        """Number of finite values."""
        return sum(self.positive.values()) + sum(self.negative.values()) + self.zeros

    @property
    def value(self) -> float:
        """The median."""
        return self.quantile(0.5)

    def quantile(self, q: float) -> float:
        """The `q` quantile, with `q` in [0, 1]; NaN for no values."""
        if not self.count:
            return math.nan
        rank = q * (self.count - 1)
        seen = 0
        # Only the bucket of the answer needs its middle: a log has a histogram in every step.
        for sign, bucket, count in self._ascending():
            seen += count
            if seen > rank:
                return sign * self._middle(bucket) if sign else 0.0
        return math.nan  # never: `q` is at most 1, so one of the buckets has the answer

    def _ascending(self) -> list[tuple[int, int, int]]:
        """The sign, index and count of each bucket, from the lowest value to the highest."""
        below = [(-1, bucket, n) for bucket, n in sorted(self.negative.items(), reverse=True)]
        above = [(1, bucket, n) for bucket, n in sorted(self.positive.items())]
        return [*below, *([(0, 0, self.zeros)] if self.zeros else []), *above]

    @classmethod
    def _middle(cls, index: int) -> float:
        """The representative value of a bucket, at most the largest double."""
        return math.exp(min(index * cls._LOG_GAMMA + cls._LOG_MIDDLE, _LOG_LARGEST))

    def merge(self, other: Quantiles) -> Quantiles:
        """The histogram of the union."""
        return Quantiles(
            _add_counts(self.positive, other.positive),
            _add_counts(self.negative, other.negative),
            self.zeros + other.zeros,
            self.nonfinite + other.nonfinite,
        )

    def to_json(self) -> Any:
        """The bucket counts by bucket index, which is a text."""
        return {
            "positive": {str(k): n for k, n in self.positive.items()},
            "negative": {str(k): n for k, n in self.negative.items()},
            "zeros": self.zeros,
            "nonfinite": self.nonfinite,
        }

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Inverse of `to_json`.

        Raises:
            ValueError: if a bucket's number does not fit into 64 bits.
        """
        return cls(
            cls._counts_of(data["positive"]),
            cls._counts_of(data["negative"]),
            int(data["zeros"]),
            int(data["nonfinite"]),
        )

    @classmethod
    def _counts_of(cls, data: Mapping[str, Any]) -> dict[int, int]:
        counts = {int(k): int(n) for k, n in data.items()}
        if any(abs(k) > _LARGEST_BUCKET for k in counts):
            raise ValueError("a bucket beyond 64 bits")
        return counts


def _add_counts(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
    return {k: left.get(k, 0) + right.get(k, 0) for k in {**left, **right}}


@dataclass(frozen=True, slots=True)
class Absent:
    """A reading that was not logged."""

    nonfinite: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A reading without meaning in this run; `why` gives the reason as a clause."""

    why: str
    nonfinite: ClassVar[int] = 0


Value = Mean | Rate | Max | Min | Quantiles
Reading = Value | Absent | NotApplicable

ABSENT = Absent()
_KINDS: dict[str, type[Mean] | type[Rate] | type[Max] | type[Min] | type[Quantiles]] = {
    "mean": Mean,
    "rate": Rate,
    "max": Max,
    "min": Min,
    "quantiles": Quantiles,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def merge(left: Reading, right: Reading) -> Reading:
    """Merge two readings of the same metric.

    `Absent` adds nothing. A value overrides `NotApplicable`, since a part of the run has one.

    Raises:
        TypeError: if the two are values of different kinds.
    """
    for reading, other in ((left, right), (right, left)):
        if isinstance(reading, Absent):
            return other
    if isinstance(left, NotApplicable) and isinstance(right, NotApplicable):
        return min(left, right, key=lambda reading: reading.why)
    for reading, other in ((left, right), (right, left)):
        if isinstance(reading, NotApplicable):
            return other
    if type(left) is not type(right):
        raise TypeError(f"cannot merge {type(left).__name__} with {type(right).__name__}")
    return left.merge(right)  # type: ignore[union-attr, arg-type]  # same kind, checked above


def merge_all(left: Mapping[str, Reading], right: Mapping[str, Reading]) -> dict[str, Reading]:
    """Merge two sets of readings by metric name."""
    merged = dict(left)
    for name, reading in right.items():
        merged[name] = merge(merged[name], reading) if name in merged else reading
    return merged


def reading_to_json(reading: Reading) -> Any:
    """A reading as JSON: `{"mean": [total, count]}`, `{"not_applicable": why}` or null."""
    if isinstance(reading, Absent):
        return None
    if isinstance(reading, NotApplicable):
        return {"not_applicable": reading.why}
    return {_NAMES[type(reading)]: reading.to_json()}


def reading_from_json(data: Any) -> Reading:
    """Inverse of `reading_to_json`.

    Raises:
        ValueError: if `data` is not a reading.
    """
    if data is None:
        return ABSENT
    try:
        ((kind, body),) = data.items()
        if kind == "not_applicable":
            return NotApplicable(str(body))
        return _KINDS[kind].from_json(body)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not a reading: {str(data)[:80]}") from error


def scalar(reading: Reading) -> float | None:
    """The number of a reading; None if it is absent, not applicable or empty."""
    # The two readings without a value have no such attribute; a test of the types takes longer,
    # and rules ask for dozens of numbers at every step.
    number: float | None = getattr(reading, "value", None)
    return number if number == number else None  # NaN differs from itself
