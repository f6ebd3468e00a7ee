"""Random numbers that depend on an index, not on the order of calls.

The selection of tokens and a prompt's bootstrap weight are hashes of the seed and of the token's or
prompt's number. They are therefore independent of shard sizes and need no state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UNIT = 2.0**-53
_POISSON = np.cumsum([np.exp(-1.0) / np.prod(np.arange(1, k + 1)) for k in range(18)])
"""Distribution function of a Poisson variable with mean 1; the tail is below 1e-16."""


def uniform(seed: int, *numbers: NDArray[np.integer]) -> NDArray[np.float64]:
    """A number in [0, 1) for each tuple of numbers, broadcast against each other."""
    state = _mixed(np.array([seed & (2**63 - 1)], np.uint64))
    for each in numbers:
        state = _mixed(state ^ _mixed(np.asarray(each).astype(np.int64).view(np.uint64)))
    return (state >> np.uint64(11)).astype(np.float64) * _UNIT


def poisson(seed: int, *numbers: NDArray[np.integer]) -> NDArray[np.float64]:
    """A Poisson variable with mean 1 for each tuple of numbers."""
    return np.searchsorted(_POISSON, uniform(seed, *numbers), side="right").astype(np.float64)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014); arithmetic modulo 2^64."""
    state = state + _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
