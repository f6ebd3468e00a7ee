"""Per-token columns of responses of different lengths, concatenated without padding.

The columns of a dump are measured in place, in blocks of whole responses that fit into the
processor's cache. Reductions stay within a response, so that no figure depends on how a dump is
split into shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from grpodoctor.measure.mismatch import FAR
from grpodoctor.support.arrays import np, with_errstate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Flags

_BLOCK = 24 * 1024
"""Tokens per block: a few float64 columns of them fit into the second-level cache."""

GAP_SUMS = (
    "gap/tokens", "gap/nonfinite", "gap/bias", "gap/excess", "gap/squared_excess", "gap/far",
    "gap/logprob_diff", "gap/prob_diff", "gap/q", "gap/qq", "gap/qe", "gap/qqe", "gap/qqee",
)  # fmt: skip
"""Sums over a response's tokens of d, e, e², |d|, q|e|, q, q², qe, q²e and q²e², where q is the
sampler's probability, d the log-ratio of learner to sampler, and e = exp(d) - 1."""
GAP_MAXIMA = ("gap/logprob_diff_max", "gap/prob_diff_max")


@dataclass(frozen=True, slots=True)
class Ragged:
    """One list of numbers per response."""

    values_N: NDArray[Any]
    offsets_B: NDArray[np.int64]
    """Start of each response, and the end of the last one; shape (B + 1,)."""

    @classmethod
    def of_lengths(cls, values_N: NDArray[Any], lengths_B: NDArray[np.int64]) -> Ragged:
        """Build from the values and the number of values per response."""
        return cls(values_N, np.concatenate(([0], np.cumsum(lengths_B))).astype(np.int64))

    @property
    def lengths_B(self) -> NDArray[np.int64]:
        """Entries per response."""
        return np.diff(self.offsets_B)

    def __len__(self) -> int:
        return self.offsets_B.size - 1

    def row(self, index: int) -> NDArray[Any]:
        """The entries of one response."""
        return self.values_N[self.offsets_B[index] : self.offsets_B[index + 1]]

    def where(self, mask_N: Flags) -> Ragged:
        """Only the entries where the mask is set."""
        kept = np.concatenate(([0], np.cumsum(mask_N)))
        first = self.offsets_B[0]
        return Ragged(
            self.values_N[first : self.offsets_B[-1]][mask_N],
            kept[self.offsets_B - first].astype(np.int64),
        )

    def fits(self, other: Ragged) -> bool:
        """Whether both have the same lengths."""
        return len(self) == len(other) and bool((self.lengths_B == other.lengths_B).all())

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of responses with about `_BLOCK` tokens, as (first, one past the last)."""
        first = 0
        while first < len(self):
            limit = self.offsets_B[first] + _BLOCK
            last = int(np.searchsorted(self.offsets_B, limit, side="right")) - 1
            last = min(max(last, first + 1), len(self))
            yield first, last
            first = last


def fingerprints(tokens: Ragged) -> NDArray[np.uint64]:
    """A hash of each response's tokens, 0 for an empty response.

    It combines the length with the sum of the tokens, each multiplied by an odd number that depends
    on its position, modulo 2**64. Different token lists have the same hash only by chance.
    """
    with np.errstate(invalid="ignore"):  # a dump's ids may be no numbers, or too large
        values_N = np.ascontiguousarray(tokens.values_N, dtype=np.int64).view(np.uint64)
    lengths_B = tokens.lengths_B
    factors_T = _factors(max(int(lengths_B.max(initial=1)) - 1, 1).bit_length())
    ends = tokens.offsets_B.tolist()
    # Integer arithmetic: numpy does not use a BLAS library here, and nothing is rounded.
    sums = [np.dot(values_N[i:j], factors_T[: j - i]) for i, j in pairwise(ends)]
    return (lengths_B.astype(np.uint64) << np.uint64(32)) ^ np.array(sums, np.uint64)


@lru_cache(maxsize=4)
def _factors(bits: int) -> NDArray[np.uint64]:
    """2**bits odd pseudo-random numbers: the splitmix64 sequence from 1 on."""
    mixed_T = np.arange(1, 2**bits + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed_T = (mixed_T ^ (mixed_T >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed_T = (mixed_T ^ (mixed_T >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed_T ^ (mixed_T >> np.uint64(31))) | np.uint64(1)


def gap_figures(learner: Ragged, sampler: Ragged) -> dict[str, NDArray[np.float64]]:
    """Sums and maxima of the differences between two policies within each response.

    Args:
        learner: log-probabilities of the generated tokens under the learner, in nats.
        sampler: the same under the sampler, with the same lengths.

    Returns:
        The columns of `GAP_SUMS` and `GAP_MAXIMA`, shape (B,).
    """
    figures = {name: np.zeros(len(learner)) for name in (*GAP_SUMS, *GAP_MAXIMA)}
    figures["gap/tokens"][:] = learner.lengths_B
    longest = int(learner.lengths_B.max(initial=0))
    # All blocks share this memory, because freshly allocated memory is not in the cache.
    room_3N = np.empty((3, max(_BLOCK, longest)))
    for first, last in learner.blocks():
        filled = _filled(learner, first, last)
        if learner.offsets_B[:-1][filled].size:
            _measure_block(learner, sampler, (first, last), filled, room_3N, figures)
    return figures


def _filled(column: Ragged, first: int, last: int) -> slice | NDArray[np.int64]:
    """The non-empty responses of a block."""
    lengths = np.diff(column.offsets_B[first : last + 1])
    return slice(first, last) if lengths.all() else first + np.flatnonzero(lengths)


@with_errstate(over="ignore", invalid="ignore")
def _measure_block(
    learner: Ragged,
    sampler: Ragged,
    block: tuple[int, int],
    filled: slice | NDArray[np.int64],
    room_3N: NDArray[np.float64],
    figures: dict[str, NDArray[np.float64]],
) -> None:
    (begin, end), theirs = learner.offsets_B[list(block)], sampler.offsets_B[list(block)]
    starts = learner.offsets_B[:-1][filled] - begin
    d, log_q, e = room_3N[:, : end - begin]
    d[:] = learner.values_N[begin:end]
    log_q[:] = sampler.values_N[theirs[0] : theirs[1]]
    np.subtract(d, log_q, out=d)
    finite = np.isfinite(d)
    if not finite.all():
        broken = np.add.reduceat(~finite, starts, dtype=np.int64)
        figures["gap/nonfinite"][filled] = broken
        figures["gap/tokens"][filled] -= broken
        d[~finite], log_q[~finite] = 0.0, -np.inf
    _reduce(d, log_q, e, starts, filled, figures)


def _reduce(
    d: NDArray[np.float64],
    log_q: NDArray[np.float64],
    e: NDArray[np.float64],
    starts: NDArray[np.int64],
    filled: slice | NDArray[np.int64],
    figures: dict[str, NDArray[np.float64]],
) -> None:
    """Write the figures of one block; the inputs are overwritten to save memory."""

    def total(name: str, values: NDArray[np.float64]) -> None:
        figures[name][filled] = np.add.reduceat(values, starts)

    def largest(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        figures[name][filled] = maxima = np.maximum.reduceat(values, starts)
        return maxima

    total("gap/bias", d)
    np.expm1(d, out=e)
    total("gap/excess", e)
    np.abs(d, out=d)
    total("gap/logprob_diff", d)
    if largest("gap/logprob_diff_max", d).max() > FAR:
        figures["gap/far"][filled] = np.add.reduceat(d > FAR, starts, dtype=np.int64)
    q = np.exp(log_q, out=log_q)
    total("gap/q", q)
    qe = np.multiply(q, e, out=d)
    total("gap/qe", qe)
    total("gap/squared_excess", np.multiply(e, e, out=e))
    total("gap/qqe", np.multiply(q, qe, out=e))
    total("gap/qq", np.multiply(q, q, out=q))
    total("gap/qqee", np.multiply(qe, qe, out=q))
    np.abs(qe, out=qe)
    total("gap/prob_diff", qe)
    largest("gap/prob_diff_max", qe)
