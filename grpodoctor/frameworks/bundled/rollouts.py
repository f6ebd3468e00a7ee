"""The rollouts of the bundled recorder: `rollouts/step-<N>.rank-<R>.parquet`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpodoctor.frameworks.rollout_formats import parquet
from grpodoctor.frameworks.rollout_formats.base import (
    Column,
    DamageLog,
    DumpFormat,
    FilePart,
    Responses,
    Sequences,
)
from grpodoctor.frameworks.rollout_formats.columns import LARGEST_STEP, flags, if_known
from grpodoctor.measure.mismatch import PER_RESPONSE
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_FILE = re.compile(r"step-(\d{1,12})\.rank-\d+\.parquet")
_COLUMNS = (
    "step", "rank", "sequence_id", "group_id", "prompt", "text", "reference", "length", "reward",
    "components", "correct", "truncated", "advantage", "staleness", "token_ids", "learner_logprobs",
    "sampler_logprobs", "sequence_token_ids", "sequence_sampled",
)  # fmt: skip
_LARGE = (
    "prompt",
    "text",
    "reference",
    "token_ids",
    "components",
    "sequence_token_ids",
    "sequence_sampled",
)
_PER_TOKEN = ("token_ids", "learner_logprobs", "sampler_logprobs")
_FIGURES = ("entropy_mean", *PER_RESPONSE)
_NUMBERS = (*(name for name in _COLUMNS if name not in _LARGE), *_FIGURES)


def _read(part: FilePart, damage_log: DamageLog) -> Iterator[Responses]:
    for batch, _ in parquet.record_batches(part, _COLUMNS, damage_log):
        yield _responses(batch)


def read_figures(
    part: FilePart, damage_log: DamageLog
) -> Iterator[tuple[Responses, dict[str, NDArray[np.float64]]]]:
    """Yield responses without texts and tokens, and the per-response figures of the recorder."""
    for batch, _ in parquet.record_batches(part, _NUMBERS, damage_log):
        figures = {
            name: column
            for name in _FIGURES
            if (column := parquet.doubles(batch, name)) is not None
        }
        yield _responses(batch), figures


def complete_columns(part: FilePart, damage_log: DamageLog) -> frozenset[str]:
    """The columns per token that all responses of a part have, as depth `full` records them."""
    wanted = ("length", *_PER_TOKEN)
    complete = set(_PER_TOKEN)
    rows = 0
    for batch, _ in parquet.record_batches(part, wanted, damage_log):
        lengths = parquet.doubles(batch, "length")
        rows += batch.num_rows
        complete &= {
            name for name in _PER_TOKEN if _is_complete(parquet.lists(batch, name), lengths)
        }
    return frozenset(complete) if rows else frozenset()


def _responses(batch: pa.RecordBatch) -> Responses:
    steps = parquet.doubles(batch, "step")
    if steps is None or not _are_counts(steps):
        raise ValueError("rows without a step")
    correct, truncated = parquet.doubles(batch, "correct"), parquet.doubles(batch, "truncated")
    lengths, ranks = parquet.doubles(batch, "length"), parquet.doubles(batch, "rank")
    tokens, learner, sampler = (
        column if _is_complete(column := parquet.lists(batch, name), lengths) else None
        for name in ("token_ids", "learner_logprobs", "sampler_logprobs")
    )
    if tokens is not None and tokens.values_N.dtype.kind not in "iu":
        tokens = None
    both = learner is not None and sampler is not None
    sequences = _sequences(batch, tokens)
    return Responses(
        steps_B=steps.astype(np.int64),
        names=parquet.strings(batch, "sequence_id") or [""] * batch.num_rows,
        groups=parquet.strings(batch, "group_id"),
        ranks_B=None if ranks is None or not _are_counts(ranks) else ranks.astype(np.int64),
        prompts=parquet.strings(batch, "prompt"),
        texts=parquet.strings(batch, "text"),
        references=parquet.strings(batch, "reference"),
        tokens=tokens,
        lengths_B=lengths,
        rewards_B=parquet.doubles(batch, "reward"),
        components=_components(batch),
        correct_B=None if correct is None else flags(correct),
        truncated_B=None if truncated is None else flags(truncated),
        advantages_B=parquet.doubles(batch, "advantage"),
        staleness_B=parquet.doubles(batch, "staleness"),
        learner=learner if both else None,
        sampler=sampler if both else None,
        sequences=None if sequences is None else lambda: sequences,
    )


def _sequences(batch: pa.RecordBatch, tokens: Ragged | None) -> Sequences | None:
    """The responses with their prompts; None unless these are recorded for all of them."""
    ids, sampled = (parquet.lists(batch, f"sequence_{name}") for name in ("token_ids", "sampled"))
    if ids is None or sampled is None or tokens is None or not ids.fits(sampled):
        return None
    return Sequences(ids, sampled) if ids.where(_in_rows(sampled) > 0).fits(tokens) else None


def _in_rows(column: Ragged) -> NDArray[np.int8]:
    values_N: NDArray[np.int8] = column.values_N[column.offsets_B[0] : column.offsets_B[-1]]
    return values_N


def _are_counts(values: Column) -> bool:
    """Whether all values are in the range of step and rank numbers."""
    return bool(((values >= 0) & (values < LARGEST_STEP)).all())


def _is_complete(tokens: Ragged | None, lengths: Column | None) -> bool:
    """Whether all responses have a per-token column; at most depths only the worst ones do."""
    return tokens is not None and lengths is not None and bool((tokens.lengths_B == lengths).all())


def _components(batch: pa.RecordBatch) -> dict[str, Column]:
    if "components" not in batch.schema.names:
        return {}
    column = batch.column("components")
    if not str(column.type).startswith("map<") or not len(column.values):
        return {}
    rows = [dict(entry or ()) for entry in column.to_pylist()]
    names = sorted({name for row in rows for name in row})[:64]
    return {
        name: values
        for name in names
        if (values := if_known(np.array([_number(row.get(name)) for row in rows]))) is not None
    }


def _number(value: object) -> float:
    if not isinstance(value, float | int):
        return np.nan
    return float(value) if np.isfinite(value) else np.inf


def _step_of(path: Path) -> int | None:
    match = _FILE.fullmatch(path.name)
    return int(match[1]) if match else None


def _claims(path: Path, head: bytes) -> bool:
    if not head.startswith(parquet.MAGIC):
        return False
    needed = {"step", "group_id", "token_ids", "sampler_logprobs"}
    return _step_of(path) is not None or needed <= set(parquet.column_names(path))


FORMAT = DumpFormat(
    "grpodoctor rollouts", "grpodoctor", 10, _claims, _step_of, parquet.cut_row_groups, _read
)
