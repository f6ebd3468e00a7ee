"""From responses to rows of figures: the pure function that every runner applies to a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from grpodoctor.measure.digest import COMPONENT, Digest, extremes_of, join
from grpodoctor.measure.ragged import Ragged, fingerprints, gap_figures
from grpodoctor.measure.text import (
    LONGEST_BLOCK_BYTES,
    LOOP_COPIES,
    REFLECTION_RE2,
    compression,
    loops_in,
    may_loop,
    text_loops,
    unique_trigrams,
)
from grpodoctor.runs.dumps.base import Notes, Responses
from grpodoctor.runs.dumps.catalogue import dump_format_named
from grpodoctor.runs.dumps.plan import Shard
from grpodoctor.runs.records import clean_text

if TYPE_CHECKING:
    import pyarrow as pa

MOST_PROMPTS = 1000
"""Prompts whose pass rate is kept, those of the smallest hash: which ones depends on no order."""
REFLECTIONS_EVERY = 4
"""Of a large dump, one response of so many is searched for words of second thoughts."""
_SHOWN = 200
"""Characters of a prompt that are kept."""
_SPACE, _LINE_END = 32, 10
_TAIL = 2 * LOOP_COPIES * LONGEST_BLOCK_BYTES


@dataclass(slots=True)
class Summary:
    """What a shard comes to."""

    digest: Digest
    prompts: dict[int, str] = field(default_factory=dict)
    """The beginning of a prompt by its hash, for the smallest of these."""
    notes: Notes = field(default_factory=Notes)


def summarise_shard(shard: Shard) -> Summary:
    """Read a shard and keep a row of figures for each response.

    Raises:
        RunError: if a file cannot be used.
        OSError: if one cannot be read.
    """
    notes = Notes()
    prompts: dict[int, str] = {}
    digests = []
    for responses in _responses(shard, notes):
        digests.append(digest_of(responses, shard.every))
        if responses.prompts is not None:
            column = digests[-1].columns["prompt"].tolist()
            prompts = smallest({**prompts, **_shown(column, responses.prompts)})
    return Summary(join(digests), prompts, notes)


def _responses(shard: Shard, notes: Notes) -> Iterator[Responses]:
    read = dump_format_named(shard.format).read
    for piece in shard.pieces:
        yield from read(piece, notes)


def _shown(hashes: Sequence[int], prompts: Sequence[str]) -> dict[int, str]:
    firsts = dict(zip(hashes, prompts, strict=True))
    return {key: clean_text(text[:_SHOWN]) for key, text in smallest(firsts).items()}


def smallest(prompts: dict[int, str]) -> dict[int, str]:
    """Those of the smallest hashes."""
    if len(prompts) <= MOST_PROMPTS:
        return prompts
    return {key: prompts[key] for key in sorted(prompts)[:MOST_PROMPTS]}


def digest_of(responses: Responses, every: int = 1) -> Digest:
    """A row of figures per response.

    Args:
        responses: as a reader gave them.
        every: of so many responses, one is compressed and its 3-grams are counted: both cost more
            than all the rest. Which one, its text or its tokens decide, whoever reads it.
    """
    count = len(responses)
    columns: dict[str, NDArray[np.generic]] = {
        "step": responses.steps_B,
        "group": _groups(responses),
        "prompt": _hashes(responses.prompts, count),
        **_figures(responses),
    }
    columns |= _of_texts(responses, every)
    if responses.tokens is not None:
        columns |= _of_tokens(responses, responses.tokens, every)
    columns.setdefault("text", np.zeros(count, np.uint64))
    if responses.learner is not None and responses.sampler is not None:
        columns |= gap_figures(responses.learner, responses.sampler)
    if responses.entropies is not None:
        columns |= _entropies(responses.entropies)
    return Digest(columns, extremes_of(columns, responses.names.__getitem__))


def _figures(responses: Responses) -> dict[str, NDArray[np.generic]]:
    lengths = responses.lengths_B
    if responses.tokens is not None:
        lengths = responses.tokens.lengths_B.astype(np.float64)
    of = {
        "reward": responses.rewards_B,
        "correct": responses.correct_B,
        "truncated": responses.truncated_B,
        "advantage": responses.advantages_B,
        "length": lengths,
        "staleness": responses.staleness_B,
        **{f"{COMPONENT}{name}": values for name, values in responses.components.items()},
    }
    return {name: values for name, values in of.items() if values is not None}


def _hash(text: str) -> int:
    """64 bits, never 0, the same in every process."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest()) or 1


def _hashes(texts: Sequence[str] | None, count: int) -> NDArray[np.uint64]:
    if texts is None:
        return np.zeros(count, np.uint64)
    known = {text: _hash(text) for text in set(texts)}
    return np.array([known[text] for text in texts], np.uint64)


def _groups(responses: Responses) -> NDArray[np.uint64]:
    """A number per response that those of one prompt and step share; 0 where nobody says."""
    if responses.groups is None:
        return np.zeros(len(responses), np.uint64)
    groups_B = _hashes(responses.groups, len(responses))
    mixed_B = groups_B * np.uint64(0x9E3779B97F4A7C15) + responses.steps_B.astype(np.uint64)
    return np.where(mixed_B == 0, np.uint64(1), mixed_B)


def _of_texts(responses: Responses, every: int) -> dict[str, NDArray[np.generic]]:
    if responses.texts is None or not any(responses.texts):
        return {}
    column = _arrow(responses.texts)
    data = memoryview(column.buffers()[2] or b"")
    offsets = np.frombuffer(column.buffers()[1], np.int64)[: len(column) + 1]
    bounds = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    sums = np.array([crc32(data[first:last]) for first, last in bounds], np.uint64)
    prints = (np.diff(offsets).astype(np.uint64) << np.uint64(32)) | sums
    found: dict[str, NDArray[np.generic]] = {
        "reflects": _reflects(column, sums % np.uint64(min(every, REFLECTIONS_EVERY)) == 0),
        "compression": _compressed(data, bounds, sums % np.uint64(every) == 0),
        # An empty text is one, too: 0 would say that nobody knows it.
        "text": np.where(prints == 0, np.uint64(1), prints),
    }
    if responses.tokens is None:
        found["loop"] = _looping(data, offsets)
    return found


def _looping(data: memoryview, offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Which texts end in a loop of bytes."""
    bytes_N = np.frombuffer(data, np.uint8)[: offsets[-1]]
    ends, starts = offsets[1:].copy(), offsets[:-1]
    for _ in range(2):
        last = bytes_N[np.maximum(ends - 1, 0)] if bytes_N.size else np.zeros(ends.size, np.uint8)
        ends -= ((last == _SPACE) | (last == _LINE_END)) & (ends > starts)
    found = np.zeros(ends.size)
    for row in may_loop(bytes_N, ends).tolist():
        first, end = int(starts[row]), int(ends[row])
        found[row] = text_loops(bytes(data[max(first, end - _TAIL) : end]))
    return found


def _arrow(texts: list[str]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        return pa.array([clean_text(each) for each in texts], pa.large_string())


def _reflects(column: pa.Array, chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    found = np.full(len(column), np.nan)
    texts = column if chosen.all() else column.filter(chosen)
    hits = pc.match_substring_regex(texts, REFLECTION_RE2)
    found[chosen] = hits.to_numpy(zero_copy_only=False)
    return found


def _compressed(
    data: memoryview, bounds: Sequence[tuple[int, int]], chosen: NDArray[np.bool_]
) -> NDArray[np.float64]:
    found = np.full(len(bounds), np.nan)
    for row in np.flatnonzero(chosen).tolist():
        first, last = bounds[row]
        if last > first:
            found[row] = compression(bytes(data[first:last]))
    return found


def _of_tokens(responses: Responses, tokens: Ragged, every: int) -> dict[str, NDArray[np.generic]]:
    prints = fingerprints(tokens)
    truncated = np.zeros(len(tokens), bool)
    if responses.truncated_B is not None:
        truncated = responses.truncated_B == 1
    trigrams = np.full(len(tokens), np.nan)
    sampled = (prints & np.uint64(0xFFFFFFFF)) % np.uint64(every) == 0
    for row in np.flatnonzero(sampled).tolist():
        trigrams[row] = unique_trigrams(tokens.row(row))
    return {
        "text": np.where(prints == 0, np.uint64(1), prints),
        "loop": loops_in(tokens, truncated).astype(np.float64),
        "trigrams": trigrams,
    }


def _entropies(entropies: Ragged) -> dict[str, NDArray[np.generic]]:
    sums, counts = np.zeros(len(entropies)), entropies.lengths_B.astype(np.float64)
    filled = np.flatnonzero(entropies.lengths_B)
    if filled.size:
        starts = entropies.offsets_B[filled] - entropies.offsets_B[0]
        values = entropies.values_N[entropies.offsets_B[0] : entropies.offsets_B[-1]]
        sums[filled] = np.add.reduceat(values.astype(np.float64), starts)
    return {"entropy": np.where(np.isnan(sums), np.inf, sums), "entropy/tokens": counts}
