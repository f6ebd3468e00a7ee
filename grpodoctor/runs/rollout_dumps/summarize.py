"""Summarizing a shard: the pure function that every runner calls, from responses to figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grpodoctor.frameworks.rollout_formats.base import Column, DamageLog, Responses
from grpodoctor.frameworks.rollout_formats.registry import dump_format_named
from grpodoctor.measure.agreement import stated_answers
from grpodoctor.measure.answers import answer_matches
from grpodoctor.measure.buckets import RankedMeans, bucket_means
from grpodoctor.measure.ragged import Ragged, fingerprints, gap_figures
from grpodoctor.measure.response_table import COMPONENT, ResponseTable, join_tables, step_maxima
from grpodoctor.measure.subsample import hash_ranks, name_hashes, text_fingerprints
from grpodoctor.measure.text import (
    LONGEST_BLOCK_BYTES,
    LOOP_COPIES,
    loops_in,
    may_loop,
    text_loops,
)
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_dumps.text_subsample import TextSubsample
from grpodoctor.support.arrays import np
from grpodoctor.support.safe_text import clean_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PROMPTS = 1000
"""Prompts whose pass rates are kept: those with the smallest hashes, so that the choice does not
depend on the order of shards."""
_PROMPT_CHARACTERS = 200
"""Characters of a prompt that are kept."""
_SPACE, _LINE_END = 32, 10
_TAIL = 2 * LOOP_COPIES * LONGEST_BLOCK_BYTES
_SHORT_TAIL = LONGEST_BLOCK_BYTES + 16
"""Bytes at the end of a text that show whether a loop is possible; only then are more checked."""


@dataclass(slots=True)
class ShardSummary:
    """The figures of a shard."""

    table: ResponseTable
    prompts: dict[int, str] = field(default_factory=dict)
    """The beginnings of the prompts with the smallest hashes, by hash."""
    notes: DamageLog = field(default_factory=DamageLog)


def summarize_shard(shard: Shard, *, ahead: bool = False) -> ShardSummary:
    """Read a shard and compute a row of figures for each response.

    Args:
        shard: the shard.
        ahead: whether to decode Parquet in a second thread, if a processor is free for it.

    Raises:
        RunError: if a file cannot be used.
        OSError: if a file cannot be read.
    """
    notes, subsample = DamageLog(), TextSubsample()
    prompts: dict[int, str] = {}
    tables = []
    batches = _responses(shard, notes)
    # Arrow releases the interpreter lock; two threads that parse JSON lines would compete for it.
    if ahead and shard.pieces[0].path.endswith(".parquet"):
        batches = _read_ahead(batches)
    for responses in batches:
        tables.append(table_of(responses, subsample))
        if responses.prompts is not None:
            prompts = _with_new(prompts, tables[-1].columns["prompt"], responses.prompts)
    table = join_tables(tables)
    table.columns |= subsample.columns()
    return ShardSummary(table, prompts, notes)


def _responses(shard: Shard, notes: DamageLog) -> Iterator[Responses]:
    read = dump_format_named(shard.format).read
    for piece in shard.pieces:
        yield from read(piece, notes)


def _read_ahead(batches: Iterator[Responses]) -> Iterator[Responses]:
    """Read each batch while the previous one is measured."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as reader:
        try:
            future = reader.submit(next, batches, None)
        except RuntimeError:  # no thread can be started
            yield from batches
            return
        while (responses := future.result()) is not None:
            future = reader.submit(next, batches, None)
            yield responses


def _with_new(
    prompts: dict[int, str], hashes_B: NDArray[np.generic], texts: Sequence[str]
) -> dict[int, str]:
    """Add the new prompts of a batch."""
    hashes, firsts = np.unique(hashes_B, return_index=True)
    pairs = list(zip(hashes.tolist(), firsts.tolist(), strict=True))[:MAX_PROMPTS]
    new = {
        key: clean_text(texts[row][:_PROMPT_CHARACTERS]) for key, row in pairs if key not in prompts
    }
    return smallest(prompts | new) if new else prompts


def smallest(prompts: dict[int, str]) -> dict[int, str]:
    """Keep the `MAX_PROMPTS` prompts with the smallest hashes."""
    if len(prompts) <= MAX_PROMPTS:
        return prompts
    return {key: prompts[key] for key in sorted(prompts)[:MAX_PROMPTS]}


def table_of(responses: Responses, subsample: TextSubsample) -> ResponseTable:
    """Compute a row of figures per response.

    Args:
        responses: a batch of a dump.
        subsample: takes the responses for the costly measurements.
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
    text_prints_B = (
        text_fingerprints(texts) if texts is not None else np.zeros(len(responses), np.uint64)
    )
    token_prints_B = fingerprints(tokens) if tokens is not None else None
    columns["hash_rank"] = hash_ranks(prompts_B, text_prints_B, token_prints_B)
    subsample.add(columns, texts, tokens)
    if texts is not None or token_prints_B is not None:
        prints_B = text_prints_B if token_prints_B is None else token_prints_B
        # 0 means unknown, and an empty response is known.
        columns["text"] = np.maximum(prints_B, np.uint64(1))
    if tokens is not None:
        columns["loop"] = _looping_tokens(tokens, responses.truncated_B)
    elif texts is not None:
        columns["loop"] = _looping_texts(texts)
    columns.setdefault("text", np.zeros(len(responses), np.uint64))
    by_bucket: dict[int, list[RankedMeans]] = {}
    if responses.learner is not None and responses.sampler is not None:
        columns |= gap_figures(responses.learner, responses.sampler)
        by_bucket = bucket_means(responses.learner, responses.sampler, columns)
    if responses.texts is not None:
        columns["final"] = stated_answers(responses.texts)
        columns["characters"] = np.array([len(text) for text in responses.texts], np.float64)
    if responses.texts is not None and responses.references is not None:
        columns["answer"] = answer_matches(responses.texts, responses.references)
    if responses.entropies is not None:
        columns |= _entropies(responses.entropies)
    return ResponseTable(columns, step_maxima(columns, responses.names.__getitem__), by_bucket)


def _encoded(texts: Sequence[str] | None) -> list[bytes] | None:
    if texts is None or not any(texts):
        return None
    return [text.encode("utf-8", "surrogatepass") for text in texts]


def _figures(responses: Responses) -> dict[str, NDArray[np.generic]]:
    lengths_B = responses.lengths_B
    if responses.tokens is not None:
        lengths_B = responses.tokens.lengths_B.astype(np.float64)
    figures = {
        "reward": responses.rewards_B,
        "correct": responses.correct_B,
        "truncated": responses.truncated_B,
        "advantage": responses.advantages_B,
        "length": lengths_B,
        "staleness": responses.staleness_B,
        **{f"{COMPONENT}{name}": values_B for name, values_B in responses.components.items()},
    }
    return {name: values_B for name, values_B in figures.items() if values_B is not None}


def _hashes(texts: Sequence[str] | None, count: int) -> NDArray[np.uint64]:
    return np.zeros(count, np.uint64) if texts is None else name_hashes(texts)


def _groups(responses: Responses, prompts_B: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A number per response, equal within a prompt and step; 0 if groups are unknown."""
    if responses.groups is None:
        return np.zeros(len(responses), np.uint64)
    is_prompt = responses.groups is responses.prompts
    groups_B = prompts_B if is_prompt else name_hashes(responses.groups)
    mixed_B = groups_B * np.uint64(0x9E3779B97F4A7C15) + responses.steps_B.astype(np.uint64)
    numbers_B: NDArray[np.uint64] = np.maximum(mixed_B, np.uint64(1))
    return numbers_B


def _looping_texts(texts: Sequence[bytes]) -> NDArray[np.float64]:
    """Whether each text ends in a repeated block of bytes, bool."""
    tails = [text[-_SHORT_TAIL:] for text in texts]
    bytes_N = np.frombuffer(b"".join(tails), np.uint8)
    ends_B = np.cumsum(np.fromiter(map(len, tails), np.int64, len(tails)))
    starts_B = np.concatenate(([0], ends_B[:-1]))
    for _ in range(2):
        last_B = (
            bytes_N[np.maximum(ends_B - 1, 0)] if bytes_N.size else np.zeros(ends_B.size, np.uint8)
        )
        ends_B -= ((last_B == _SPACE) | (last_B == _LINE_END)) & (ends_B > starts_B)
    loops_B = np.zeros(ends_B.size)
    for row in may_loop(bytes_N, ends_B).tolist():
        loops_B[row] = text_loops(texts[row][-_TAIL:])
    return loops_B


def _looping_tokens(tokens: Ragged, truncated_B: Column | None) -> NDArray[np.float64]:
    cut_B = np.zeros(len(tokens), bool) if truncated_B is None else truncated_B == 1
    return loops_in(tokens, cut_B).astype(np.float64)


def _entropies(entropies: Ragged) -> dict[str, NDArray[np.generic]]:
    sums_B, counts_B = np.zeros(len(entropies)), entropies.lengths_B.astype(np.float64)
    filled = np.flatnonzero(entropies.lengths_B)
    if filled.size:
        starts = entropies.offsets_B[filled] - entropies.offsets_B[0]
        values_N = entropies.values_N[entropies.offsets_B[0] : entropies.offsets_B[-1]]
        sums_B[filled] = np.add.reduceat(values_N.astype(np.float64), starts)
    return {"entropy": np.where(np.isnan(sums_B), np.inf, sums_B), "entropy/tokens": counts_B}
