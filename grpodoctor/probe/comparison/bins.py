"""The gap by position and by probability, in bins fine enough for a chart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpodoctor.probe.comparison.pair import ShardPair
from grpodoctor.probe.results.results import Bin

POSITION_EDGES = (0.0, *sorted({float(round(2 ** (half / 2))) for half in range(49)}))
"""Two bins per octave, up to 2^24 tokens."""

_TAIL = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
PROBABILITY_EDGES = (
    0.0,
    *_TAIL,
    *(step / 20 for step in range(1, 20)),
    *(1 - edge for edge in reversed(_TAIL[1:])),
    1.0,
)
"""Bins of the sampler's probability: decades at both ends, twentieths in between."""


class BinTally:
    """Counts, sums and maxima of the tokens in fixed bins.

    Args:
        edges: ascending borders; values beyond the last border count in the last bin.
    """

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = np.array(edges)
        bins = len(edges) - 1
        self._tokens = np.zeros(bins, np.int64)
        self._prob_diff = np.zeros(bins)
        self._logprob_diff = np.zeros(bins)
        self._largest = np.zeros(bins)

    def add(self, keys_N: NDArray[np.number], pair: ShardPair) -> None:
        """Add tokens, each with the number that determines its bin."""
        bins = len(self._tokens)
        cells_N = np.searchsorted(self._edges[1:-1], keys_N, side="right")
        self._tokens += np.bincount(cells_N, minlength=bins)
        self._prob_diff += np.bincount(cells_N, pair.prob_diff_N, bins)
        self._logprob_diff += np.bincount(cells_N, pair.logprob_diff_N, bins)
        np.maximum.at(self._largest, cells_N, pair.prob_diff_N)

    def bins(self) -> tuple[Bin, ...]:
        """The bins with tokens, in order."""
        return tuple(
            Bin(
                float(self._edges[at]),
                float(self._edges[at + 1]),
                int(self._tokens[at]),
                float(self._prob_diff[at] / self._tokens[at]),
                float(self._logprob_diff[at] / self._tokens[at]),
                float(self._largest[at]),
            )
            for at in np.flatnonzero(self._tokens)
        )
