"""The responses of a shard that are looked into at length, held until it is known which these are.

A shard does not know what else its steps hold. Those that are drawn of a whole step are among those
that are drawn of its part in the shard: these are looked into, and the fold draws again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.ragged import Ragged
from grpodoctor.measure.subsample import LOOKED_INTO, SEARCHED, Lots, among, drawn
from grpodoctor.measure.text import GRAM, REFLECTION_RE2, compression, unique_trigrams

MOST_HELD = 64 * 1024 * 1024
"""Bytes of responses that are held; with more, they are looked into before all are known."""


class _Held(NamedTuple):
    """A response that may be drawn."""

    lot: int
    row: int
    """Which of the shard's."""
    content: Any
    """Its text or its tokens; None once it was looked into."""


class _Draw:
    """Those of the lowest lots of each step and rank."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[tuple[int, int], list[_Held]] = defaultdict(list)
        self.size = 0
        """Of all contents that were held since they were last taken."""

    def offer(
        self,
        owners: tuple[NDArray[Any], NDArray[Any]],
        lots_B: Lots,
        first: int,
        content_of: Callable[[int], Any],
    ) -> None:
        """Hold what may be drawn of a batch.

        Args:
            owners: steps and ranks.
            lots_B: 0 for what takes no part.
            first: which row of the shard is the batch's first.
            content_of: gives the content of a row.
        """
        for row in np.flatnonzero(drawn(lots_B, self._most, *owners)).tolist():
            held = self._held[int(owners[0][row]), int(owners[1][row])]
            lot = int(lots_B[row])
            if len(held) < self._most or lot < held[self._most - 1].lot:
                held.append(_Held(lot, first + row, content_of(row)))
                self.size += len(held[-1].content)
        for held in self._held.values():
            held.sort(key=lambda each: each[:2])
            del held[self._most :]

    def take(self) -> Iterator[list[_Held]]:
        """What is held of each step and rank, in the order of the draw; its content is let go."""
        for held in self._held.values():
            yield held.copy()
            held[:] = [each._replace(content=None) for each in held]
        self.size = 0


class TextSubsample:
    """Takes the responses of a shard batch by batch, and gives the figures of those drawn."""

    def __init__(self) -> None:
        self._texts, self._tokens = _Draw(SEARCHED), _Draw(LOOKED_INTO)
        self._rows = 0
        self._found: dict[str, dict[int, float]] = defaultdict(dict)

    def offer(
        self,
        columns: Mapping[str, NDArray[Any]],
        texts: Sequence[bytes] | None,
        tokens: Ragged | None,
    ) -> None:
        """Take a batch of responses.

        Args:
            columns: `step`, `lot` and, where several ranks sampled, `rank`.
            texts: in UTF-8.
            tokens: the generated ones.
        """
        lots_B, first = columns["lot"], self._rows
        owners = columns["step"], columns.get("rank", np.zeros(lots_B.size, np.int64))
        if texts is not None:
            lots = among(lots_B, np.fromiter(map(bool, texts), bool, len(texts)))
            self._texts.offer(owners, lots, first, texts.__getitem__)
        if tokens is not None:
            lots = among(lots_B, tokens.lengths_B >= GRAM)
            self._tokens.offer(owners, lots, first, lambda row: tokens.row(row).copy())
        self._rows += lots_B.size
        if self._texts.size + 8 * self._tokens.size > MOST_HELD:
            self._look()

    def _look(self) -> None:
        """Look into what is held."""
        texts: list[_Held] = []
        for held in self._texts.take():
            for each in held[:LOOKED_INTO]:
                if each.content is not None:
                    self._found["compression"][each.row] = compression(each.content)
            texts += [each for each in held if each.content is not None]
        if texts:
            hits = _reflects([each.content for each in texts])
            self._found["reflects"].update(zip((each.row for each in texts), hits, strict=True))
        for held in self._tokens.take():
            for each in held:
                if each.content is not None:
                    self._found["trigrams"][each.row] = unique_trigrams(each.content)

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The figures of every response of the shard; NaN of those that were not looked into."""
        self._look()
        found: dict[str, NDArray[np.generic]] = {}
        for name, values in self._found.items():
            if values:
                column = np.full(self._rows, np.nan)
                column[list(values)] = list(values.values())
                found[name] = column
        return found


def _reflects(texts: Sequence[bytes]) -> list[float]:
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    parts = np.concatenate(([0], ends)), b"".join(texts)
    # From a list, pyarrow would load pandas where that is installed: a quarter of a second.
    column = pa.Array.from_buffers(
        pa.large_binary(), len(texts), [None, *(pa.py_buffer(each) for each in parts)]
    )
    hits = pc.match_substring_regex(column, REFLECTION_RE2)
    return [float(each) for each in hits.to_pylist()]
