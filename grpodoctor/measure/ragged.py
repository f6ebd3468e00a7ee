"""Per-token columns of responses of different lengths, one after another, without padding.

A dump's columns are measured as they lie, in blocks of whole responses that fit the processor's
cache. What is reduced is reduced within one response, so that no figure depends on how a dump was
cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.batch import Flags
from grpodoctor.measure.mismatch import FAR

_BLOCK = 16 * 1024
"""Tokens measured at once: a dozen double columns of them stay in the second-level cache."""

GAP_SUMS = (
    "gap/tokens", "gap/nonfinite", "gap/bias", "gap/excess", "gap/squared_excess", "gap/far",
    "gap/logprob_diff", "gap/prob_diff", "gap/q", "gap/qq", "gap/qe", "gap/qqe", "gap/qqee",
)  # fmt: skip
"""Sums over a response's tokens: with q the sampler's probability, d the log-ratio to the
learner's and e = exp(d) - 1, of d, e, e², |d|, q|e|, q, q², qe, q²e, q²e²."""
GAP_MAXIMA = ("gap/logprob_diff_max", "gap/prob_diff_max")


@dataclass(frozen=True, slots=True)
class Ragged:
    """One list of numbers per response."""

    values_N: NDArray[Any]
    offsets_B: NDArray[np.int64]
    """Where each response begins, and where the last one ends; one longer than there are."""

    @classmethod
    def of_lengths(cls, values_N: NDArray[Any], lengths_B: NDArray[np.int64]) -> Ragged:
        """From the values and how many each response has."""
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
        """Only the entries that are chosen."""
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
        """Runs of responses of about `_BLOCK` tokens, as first and after the last."""
        first = 0
        while first < len(self):
            border = self.offsets_B[first] + _BLOCK
            last = int(np.searchsorted(self.offsets_B, border, side="right")) - 1
            last = min(max(last, first + 1), len(self))
            yield first, last
            first = last


def fingerprints(tokens: Ragged) -> NDArray[np.uint64]:
    """A number per response that equal token lists share; 64 bits, the length among them."""
    values_N = np.ascontiguousarray(tokens.values_N, dtype=np.int64)
    bytes_N = values_N.view(np.uint8).data
    ends = (tokens.offsets_B * values_N.itemsize).tolist()
    sums = [crc32(bytes_N[ends[i] : ends[i + 1]]) for i in range(len(tokens))]
    return (tokens.lengths_B.astype(np.uint64) << np.uint64(32)) | np.array(sums, np.uint64)


def gap_figures(learner: Ragged, sampler: Ragged) -> dict[str, NDArray[np.float64]]:
    """Sums and maxima of the differences of two policies within each response.

    Args:
        learner: log-probabilities of the generated tokens under the learner, in nats.
        sampler: the same under the sampler; as many of each response.

    Returns:
        The columns of `GAP_SUMS` and `GAP_MAXIMA`, shape (B,).
    """
    figures = {name: np.zeros(len(learner)) for name in (*GAP_SUMS, *GAP_MAXIMA)}
    for first, last in learner.blocks():
        _measure_block(learner, sampler, first, last, figures)
    return figures


@np.errstate(over="ignore", invalid="ignore")
def _measure_block(
    learner: Ragged,
    sampler: Ragged,
    first: int,
    last: int,
    figures: dict[str, NDArray[np.float64]],
) -> None:
    offsets = learner.offsets_B[first : last + 1]
    filled = first + np.flatnonzero(np.diff(offsets))
    if not filled.size:
        return
    starts = learner.offsets_B[filled] - offsets[0]
    ours = sampler.offsets_B[first], sampler.offsets_B[last]
    log_q = sampler.values_N[ours[0] : ours[1]].astype(np.float64)
    d = learner.values_N[offsets[0] : offsets[-1]].astype(np.float64)
    np.subtract(d, log_q, out=d)
    figures["gap/tokens"][filled] = learner.lengths_B[filled]
    finite = np.isfinite(d)
    if not finite.all():
        broken = np.add.reduceat(~finite, starts, dtype=np.int64)
        figures["gap/nonfinite"][filled] = broken
        figures["gap/tokens"][filled] -= broken
        d[~finite], log_q[~finite] = 0.0, -np.inf
    _reduce(d, log_q, starts, filled, figures)


def _reduce(
    d: NDArray[np.float64],
    log_q: NDArray[np.float64],
    starts: NDArray[np.int64],
    filled: NDArray[np.int64],
    figures: dict[str, NDArray[np.float64]],
) -> None:
    """Write the figures of one block; what is reduced is overwritten where it is not needed."""

    def total(name: str, values: NDArray[np.float64]) -> None:
        figures[name][filled] = np.add.reduceat(values, starts)

    total("gap/bias", d)
    e = np.expm1(d)
    total("gap/excess", e)
    np.abs(d, out=d)
    total("gap/logprob_diff", d)
    figures["gap/logprob_diff_max"][filled] = np.maximum.reduceat(d, starts)
    far = d > FAR
    if far.any():
        figures["gap/far"][filled] = np.add.reduceat(far, starts, dtype=np.int64)
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
    figures["gap/prob_diff_max"][filled] = np.maximum.reduceat(qe, starts)
