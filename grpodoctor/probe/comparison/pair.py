"""A shard of the sampler with the learner's scores of the same tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.batch import Integers
from grpodoctor.measure.mismatch import TokenPairs
from grpodoctor.probe.contract import Shard


@dataclass(frozen=True)
class ShardPair:
    """The same responses in two engines."""

    sampled: Shard
    scored: Shard
    tokens: TokenPairs
    """Tokens that are finite on both sides; `rows_N` numbers the shard's responses."""

    @classmethod
    def of(cls, sampled: Shard, scored: Shard) -> Self:
        """Combine two shards of the same tokens."""
        tokens = TokenPairs.select(
            sampled.rows_N, sampled.positions_N, scored.logprobs_N, sampled.logprobs_N
        )
        return cls(sampled, scored, tokens)

    @cached_property
    def finite_N(self) -> NDArray[np.bool_]:
        """Whether each token of the shard is finite on both sides, bool."""
        return np.isfinite(self.scored.logprobs_N) & np.isfinite(self.sampled.logprobs_N)

    @cached_property
    def rows(self) -> Integers:
        """The responses with finite tokens; per-response figures have this order."""
        return self.tokens.rows_N[self.tokens.starts]

    @cached_property
    def prob_diff_N(self) -> NDArray[np.float64]:
        """|p - p'| of the finite tokens."""
        return self.tokens.differences()["prob_diff"]

    @cached_property
    def logprob_diff_N(self) -> NDArray[np.float64]:
        """|log p - log p'| of the finite tokens, in nats."""
        return self.tokens.differences()["logprob_diff"]

    @cached_property
    def figures(self) -> dict[str, NDArray[np.float64]]:
        """Mean and maximum per response, in the order of `rows`."""
        return self.tokens.per_response()

    @property
    def sequence_ids(self) -> list[str]:
        """`prompt-P/S` of every response of the shard."""
        numbers = zip(self.sampled.prompt_B.tolist(), self.sampled.sample_B.tolist(), strict=True)
        return [f"prompt-{prompt}/{sample}" for prompt, sample in numbers]
