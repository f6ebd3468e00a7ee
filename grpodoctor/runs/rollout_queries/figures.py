"""The figures of responses: what filters and orders need, without texts and tokens."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = (
    "reward", "length", "advantage", "staleness", "entropy_mean", "prob_diff_mean",
    "prob_diff_max", "logprob_diff_mean", "logprob_diff_max",
)  # fmt: skip
"""Columns of doubles; null if unknown."""
FLAGS = ("correct", "truncated")
"""Columns of flags; null if unknown."""

Rollout = dict[str, Any]
"""One response in full: the figures, `prompt`, `text`, `reference`, `components`, and the lists
`token_ids`, `learner_logprobs`, `sampler_logprobs` and `entropies`; None if unknown."""
TOKEN_COLUMNS = ("token_ids", "learner_logprobs", "sampler_logprobs", "entropies")


class RolloutParts(Protocol):
    """The files of a run's responses, or shards of them."""

    def keys(self) -> Sequence[Hashable]:
        """A key for each part in order of steps; a part that changes gets another key."""

    def figures(self, key: Any) -> pa.Table:
        """The figures of all responses of a part, with the columns of `figures_schema`.

        Raises:
            RunError: if the part cannot be read.
        """

    def rows_with_text(self, key: Any, text: str) -> set[int]:
        """The rows of a part whose prompt or response contains a text, in any case."""

    def rollouts(
        self, key: Any, rows: Sequence[int], *, with_tokens: bool
    ) -> Mapping[int, Rollout]:
        """Some responses of a part in full, by row; without those that can no longer be read.

        Args:
            key: the part.
            rows: the responses.
            with_tokens: whether the columns of `TOKEN_COLUMNS` are needed.
        """


def figures_schema() -> pa.Schema:
    """The columns of a table of figures."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("step", pa.int64()),
            pa.field("sequence_id", pa.string()),
            pa.field("group_id", pa.string()),
            *(pa.field(name, pa.float64()) for name in NUMBERS),
            *(pa.field(name, pa.bool_()) for name in FLAGS),
        ]
    )
