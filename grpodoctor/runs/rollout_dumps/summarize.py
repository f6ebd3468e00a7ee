"""From responses to rows of figures: the pure function that every runner applies to a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.frameworks.rollout_formats.base import Column, DamageLog, Responses
from grpodoctor.frameworks.rollout_formats.registry import dump_format_named
from grpodoctor.measure.buckets import Sorted, sort_drawn
from grpodoctor.measure.ragged import Ragged, fingerprints, gap_figures
from grpodoctor.measure.response_table import COMPONENT, Digest, extremes_of, join
from grpodoctor.measure.subsample import lots_of, name_hashes, text_prints
from grpodoctor.measure.text import (
    LONGEST_BLOCK_BYTES,
    LOOP_COPIES,
    loops_in,
    may_loop,
    text_loops,
)
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_dumps.text_subsample import TextSubsample
from grpodoctor.support.safe_text import clean_text

MOST_PROMPTS = 1000
"""Prompts whose pass rate is kept, those of the smallest hash: which ones depends on no order."""
_SHOWN = 200
"""Characters of a prompt that are kept."""
_SPACE, _LINE_END = 32, 10
_TAIL = 2 * LOOP_COPIES * LONGEST_BLOCK_BYTES
_GLANCED_AT = LONGEST_BLOCK_BYTES + 16
"""Bytes of a text in which a loop shows; only then is more looked at."""


@dataclass(slots=True)
class Summary:
    """What a shard comes to."""

    digest: Digest
    prompts: dict[int, str] = field(default_factory=dict)
    """The beginning of a prompt by its hash, for the smallest of these."""
    notes: DamageLog = field(default_factory=DamageLog)


def summarize_shard(shard: Shard, *, ahead: bool = False) -> Summary:
    """Read a shard and keep a row of figures for each response.

    Args:
        shard: what to read.
        ahead: whether to decode Parquet in a thread beside, where a processor is free for it.

    Raises:
        RunError: if a file cannot be used.
        OSError: if one cannot be read.
    """
    notes, looks = DamageLog(), TextSubsample()
    prompts: dict[int, str] = {}
    digests = []
    batches = _responses(shard, notes)
    # Arrow lets go of the interpreter's lock; for parsing lines two threads would only fight.
    if ahead and shard.pieces[0].path.endswith(".parquet"):
        batches = _ahead(batches)
    for responses in batches:
        digests.append(digest_of(responses, looks))
        if responses.prompts is not None:
            prompts = _with(prompts, digests[-1].columns["prompt"], responses.prompts)
    digest = join(digests)
    digest.columns |= looks.columns()
    return Summary(digest, prompts, notes)


def _responses(shard: Shard, notes: DamageLog) -> Iterator[Responses]:
    read = dump_format_named(shard.format).read
    for piece in shard.pieces:
        yield from read(piece, notes)


def _ahead(batches: Iterator[Responses]) -> Iterator[Responses]:
    """The same, each read while the one before is measured."""
    with ThreadPoolExecutor(1) as reader:
        waiting = reader.submit(next, batches, None)
        while (found := waiting.result()) is not None:
            waiting = reader.submit(next, batches, None)
            yield found


def _with(
    prompts: dict[int, str], hashes_B: NDArray[np.generic], texts: Sequence[str]
) -> dict[int, str]:
    """The prompts of the smallest hashes, some of which may be new."""
    hashes, firsts = np.unique(hashes_B, return_index=True)
    pairs = list(zip(hashes.tolist(), firsts.tolist(), strict=True))[:MOST_PROMPTS]
    new = {key: clean_text(texts[row][:_SHOWN]) for key, row in pairs if key not in prompts}
    return smallest(prompts | new) if new else prompts


def smallest(prompts: dict[int, str]) -> dict[int, str]:
    """Those of the smallest hashes."""
    if len(prompts) <= MOST_PROMPTS:
        return prompts
    return {key: prompts[key] for key in sorted(prompts)[:MOST_PROMPTS]}


def digest_of(responses: Responses, looks: TextSubsample) -> Digest:
    """A row of figures per response.

    Args:
        responses: as a reader gave them.
        looks: where those wait that are looked into at length.
    """
    prompts_B = _hashes(responses.prompts, len(responses))
    columns: dict[str, NDArray[Any]] = {
        "step": responses.steps_B,
        "group": _groups(responses, prompts_B),
        "prompt": prompts_B,
        **_figures(responses),
    }
    if responses.ranks_B is not None:
        columns["rank"] = responses.ranks_B
    texts, tokens = _encoded(responses.texts), responses.tokens
    of_texts = text_prints(texts) if texts is not None else np.zeros(len(responses), np.uint64)
    of_tokens = fingerprints(tokens) if tokens is not None else None
    columns["lot"] = lots_of(prompts_B, of_texts, of_tokens)
    looks.offer(columns, texts, tokens)
    if texts is not None or of_tokens is not None:
        prints_B = of_texts if of_tokens is None else of_tokens
        # An empty response is one, too: 0 would say that nobody knows it.
        columns["text"] = np.maximum(prints_B, np.uint64(1))
    if tokens is not None:
        columns["loop"] = _looping_tokens(tokens, responses.truncated_B)
    elif texts is not None:
        columns["loop"] = _looping(texts)
    columns.setdefault("text", np.zeros(len(responses), np.uint64))
    chosen: dict[int, list[Sorted]] = {}
    if responses.learner is not None and responses.sampler is not None:
        columns |= gap_figures(responses.learner, responses.sampler)
        chosen = sort_drawn(responses.learner, responses.sampler, columns)
    if responses.entropies is not None:
        columns |= _entropies(responses.entropies)
    return Digest(columns, extremes_of(columns, responses.names.__getitem__), chosen)


def _encoded(texts: Sequence[str] | None) -> list[bytes] | None:
    if texts is None or not any(texts):
        return None
    return [each.encode("utf-8", "surrogatepass") for each in texts]


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


def _hashes(texts: Sequence[str] | None, count: int) -> NDArray[np.uint64]:
    return np.zeros(count, np.uint64) if texts is None else name_hashes(texts)


def _groups(responses: Responses, prompts_B: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A number per response that those of one prompt and step share; 0 where nobody says."""
    if responses.groups is None:
        return np.zeros(len(responses), np.uint64)
    same = responses.groups is responses.prompts
    groups_B = prompts_B if same else name_hashes(responses.groups)
    mixed_B = groups_B * np.uint64(0x9E3779B97F4A7C15) + responses.steps_B.astype(np.uint64)
    found: NDArray[np.uint64] = np.maximum(mixed_B, np.uint64(1))
    return found


def _looping(texts: Sequence[bytes]) -> NDArray[np.float64]:
    """Which texts end in a loop of bytes."""
    tails = [each[-_GLANCED_AT:] for each in texts]
    bytes_N = np.frombuffer(b"".join(tails), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, tails), np.int64, len(tails)))
    starts = np.concatenate(([0], ends[:-1]))
    for _ in range(2):
        last = bytes_N[np.maximum(ends - 1, 0)] if bytes_N.size else np.zeros(ends.size, np.uint8)
        ends -= ((last == _SPACE) | (last == _LINE_END)) & (ends > starts)
    found = np.zeros(ends.size)
    for row in may_loop(bytes_N, ends).tolist():
        found[row] = text_loops(texts[row][-_TAIL:])
    return found


def _looping_tokens(tokens: Ragged, truncated_B: Column | None) -> NDArray[np.float64]:
    cut_B = np.zeros(len(tokens), bool) if truncated_B is None else truncated_B == 1
    return loops_in(tokens, cut_B).astype(np.float64)


def _entropies(entropies: Ragged) -> dict[str, NDArray[np.generic]]:
    sums, counts = np.zeros(len(entropies)), entropies.lengths_B.astype(np.float64)
    filled = np.flatnonzero(entropies.lengths_B)
    if filled.size:
        starts = entropies.offsets_B[filled] - entropies.offsets_B[0]
        values = entropies.values_N[entropies.offsets_B[0] : entropies.offsets_B[-1]]
        sums[filled] = np.add.reduceat(values.astype(np.float64), starts)
    return {"entropy": np.where(np.isnan(sums), np.inf, sums), "entropy/tokens": counts}
