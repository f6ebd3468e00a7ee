"""The text and token measurements that are too costly for every response.

Only a random subsample of each step is measured. A shard does not know the other responses of its
steps. The subsample of a whole step is contained in the union of the subsamples of its shards, so
each shard measures its own subsample and the subsample of the step is drawn later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from grpodoctor.measure.ragged import Ragged
from grpodoctor.measure.similarity import MOST_BYTES, SHINGLE, signature
from grpodoctor.measure.subsample import (
    COMPRESSED_RESPONSES,
    PAIRED_RESPONSES,
    SEARCHED_RESPONSES,
    HashRanks,
    lowest_ranked,
    only_where,
    prompt_ranks,
)
from grpodoctor.measure.text import GRAM, REFLECTION_RE2, compression, unique_trigrams
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_HELD = 64 * 1024 * 1024
"""Bytes of responses held; beyond it, they are measured before the shard is complete."""


class _Candidate(NamedTuple):
    """A response that may be in the subsample."""

    rank: int
    """Random rank; the lowest ranks are the subsample."""
    row: int
    """Row in the shard."""
    content: Any
    """Text or tokens; None once measured."""


class _Candidates:
    """The responses with the lowest random ranks of each step and training rank."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[tuple[int, int], list[_Candidate]] = defaultdict(list)
        self.size = 0
        """Total size of the contents added since `take`."""

    def add(
        self,
        owners: tuple[NDArray[Any], NDArray[Any]],
        hash_ranks_B: HashRanks,
        first: int,
        content_of: Callable[[int], Any],
    ) -> None:
        """Add the responses of a batch that may be in the subsample.

        Args:
            owners: steps and training ranks.
            hash_ranks_B: random ranks; 0 for responses that take no part.
            first: row of the batch's first response in the shard.
            content_of: returns the content of a row of the batch.
        """
        for row in np.flatnonzero(lowest_ranked(hash_ranks_B, self._most, *owners)).tolist():
            held = self._held[int(owners[0][row]), int(owners[1][row])]
            rank = int(hash_ranks_B[row])
            if len(held) < self._most or rank < held[self._most - 1].rank:
                held.append(_Candidate(rank, first + row, content_of(row)))
                self.size += len(held[-1].content)
        for held in self._held.values():
            held.sort(key=lambda candidate: candidate[:2])
            del held[self._most :]

    def take(self) -> Iterator[list[_Candidate]]:
        """Yield the candidates of each step and rank, lowest first, and drop their contents."""
        for held in self._held.values():
            yield held.copy()
            held[:] = [candidate._replace(content=None) for candidate in held]
        self.size = 0


class TextSubsample:
    """Takes the responses of a shard in batches, and measures its subsample."""

    def __init__(self) -> None:
        self._texts, self._tokens = (
            _Candidates(SEARCHED_RESPONSES),
            _Candidates(COMPRESSED_RESPONSES),
        )
        self._pairs = _Candidates(PAIRED_RESPONSES)
        self._signatures: dict[int, int] = {}
        self._rows = 0
        self._figures: dict[str, dict[int, float]] = defaultdict(dict)

    def add(
        self,
        columns: Mapping[str, NDArray[Any]],
        texts: Sequence[bytes] | None,
        tokens: Ragged | None,
    ) -> None:
        """Add a batch of responses.

        Args:
            columns: `step`, `prompt`, `hash_rank` (the random rank) and, if several ranks sampled,
                `rank`.
            texts: in UTF-8.
            tokens: the generated tokens.
        """
        hash_ranks_B, first = columns["hash_rank"], self._rows
        owners = columns["step"], columns.get("rank", np.zeros(hash_ranks_B.size, np.int64))
        if texts is not None:
            has_text_B = np.fromiter(map(bool, texts), bool, len(texts))
            self._texts.add(owners, only_where(hash_ranks_B, has_text_B), first, texts.__getitem__)
            long_B = np.fromiter((len(text) >= SHINGLE for text in texts), bool, len(texts))
            pair_ranks_B = only_where(prompt_ranks(columns["prompt"], hash_ranks_B), long_B)
            self._pairs.add(owners, pair_ranks_B, first, lambda row: texts[row][:MOST_BYTES])
        if tokens is not None:
            is_long_B = tokens.lengths_B >= GRAM
            self._tokens.add(
                owners,
                only_where(hash_ranks_B, is_long_B),
                first,
                lambda row: tokens.row(row).copy(),
            )
        self._rows += hash_ranks_B.size
        if self._texts.size + self._pairs.size + 8 * self._tokens.size > MAX_HELD:
            self._measure()

    def _measure(self) -> None:
        """Measure the candidates."""
        texts: list[_Candidate] = []
        for held in self._texts.take():
            for candidate in held[:COMPRESSED_RESPONSES]:
                if candidate.content is not None:
                    figure = compression(candidate.content)
                    self._figures["compression"][candidate.row] = figure
            texts += [candidate for candidate in held if candidate.content is not None]
        if texts:
            hits = _reflects([candidate.content for candidate in texts])
            rows = (candidate.row for candidate in texts)
            self._figures["reflects"].update(zip(rows, hits, strict=True))
        for candidate in _unmeasured(self._tokens):
            self._figures["trigrams"][candidate.row] = unique_trigrams(candidate.content)
        for candidate in _unmeasured(self._pairs):
            self._signatures[candidate.row] = signature(candidate.content)

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The figures of all responses of the shard; NaN or 0 outside the subsample."""
        self._measure()
        columns: dict[str, NDArray[np.generic]] = {}
        if self._signatures:
            signatures = np.zeros(self._rows, np.uint64)
            signatures[list(self._signatures)] = list(self._signatures.values())
            columns["signature"] = signatures
        for name, figures in self._figures.items():
            if figures:
                column = np.full(self._rows, np.nan)
                column[list(figures)] = list(figures.values())
                columns[name] = column
        return columns


def _unmeasured(candidates: _Candidates) -> Iterator[_Candidate]:
    for held in candidates.take():
        yield from (candidate for candidate in held if candidate.content is not None)


def _reflects(texts: Sequence[bytes]) -> list[float]:
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    parts = np.concatenate(([0], ends)), b"".join(texts)
    # Converting a list would load pandas if it is installed, which takes a quarter of a second.
    column = pa.Array.from_buffers(
        pa.large_binary(), len(texts), [None, *(pa.py_buffer(part) for part in parts)]
    )
    hits = pc.match_substring_regex(column, REFLECTION_RE2)
    return [float(hit) for hit in hits.to_pylist()]
