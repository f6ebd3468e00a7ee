"""Rollouts on disk: one Parquet file per step and rank, with one row per response.

The depth decides how much of a response is kept:

    off      no files
    summary  texts, reward, length and mismatch of each response; no per-token columns
    worst    as summary, plus per-token columns of the K worst responses
    full     as summary, plus per-token columns of all responses

The worst responses are those with the largest difference between sampler and learner on one token;
log-probabilities that are not finite come first. Without the sampler's log-probabilities, they are
the longest responses, which contain loops and truncation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from grpodoctor.errors import RunError
from grpodoctor.measure.mismatch import PER_RESPONSE, response_gaps
from grpodoctor.runs.records import ROLLOUTS
from grpodoctor.support.arrays import np
from grpodoctor.support.files import atomic_files
from grpodoctor.support.safe_text import clean_text

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Flags, Floats, Integers, RolloutBatch

Depth = Literal["off", "summary", "worst", "full"]
DEPTHS: tuple[Depth, ...] = ("off", "summary", "worst", "full")

_FILE = re.compile(r"step-(\d+)\.rank-(\d+)\.parquet")
_WRITE_BYTES = 1024 * 1024
"""Bytes per write of a rollouts file."""


def rollouts_schema() -> pa.Schema:
    """Return the columns of a rollouts file."""
    import pyarrow as pa

    per_token = [
        ("token_ids", pa.int64()),
        *((name, pa.float32()) for name in ("learner_logprobs", "sampler_logprobs", "entropies")),
    ]
    return pa.schema(
        [
            pa.field("step", pa.int64(), nullable=False),
            pa.field("rank", pa.int32(), nullable=False),
            *(
                pa.field(name, pa.string(), nullable=False)
                for name in ("sequence_id", "group_id", "prompt_id", "prompt", "reference")
            ),
            pa.field("text", pa.string()),
            pa.field("length", pa.int32(), nullable=False),
            pa.field("reward", pa.float64(), nullable=False),
            pa.field("components", pa.map_(pa.string(), pa.float64()), nullable=False),
            pa.field("correct", pa.bool_()),
            pa.field("truncated", pa.bool_()),
            *(
                pa.field(name, pa.float64())
                for name in ("advantage", "entropy_mean", *PER_RESPONSE)
            ),
            pa.field("staleness", pa.int32()),
            *(pa.field(name, pa.list_(kind)) for name, kind in per_token),
            pa.field("sequence_token_ids", pa.list_(pa.int32())),
            pa.field("sequence_sampled", pa.list_(pa.int8())),
        ]
    )


def rollout_table(
    batch: RolloutBatch, depth: Depth = "summary", worst: int = 8, rank: int = 0
) -> pa.Table:
    """Make the rows of a batch.

    Args:
        batch: the responses of one rank.
        depth: which responses keep their per-token columns.
        worst: number of these responses at depth `worst`.
        rank: rank of the batch.
    """
    import pyarrow as pa

    schema = rollouts_schema()
    gaps = response_gaps(batch)
    columns = {
        **_identity_columns(batch, rank),
        **_figure_columns(batch),
        **_gap_columns(gaps, len(batch.sequence_ids)),
        **_token_columns(batch, kept_B := _kept_in_full(batch, gaps, depth, worst)),
        **_sequence_columns(batch, kept_B),
    }
    arrays = [
        each if isinstance(each, pa.Array) else pa.array(each, type=field.type)
        for field in schema
        for each in (columns[field.name],)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _gap_columns(
    gaps: dict[str, NDArray[np.float64]] | None, count: int
) -> dict[str, NDArray[np.float64]] | dict[str, list[None]]:
    return dict.fromkeys(PER_RESPONSE, [None] * count) if gaps is None else gaps


def _identity_columns(batch: RolloutBatch, rank: int) -> dict[str, object]:
    count = len(batch.sequence_ids)
    texts = {
        "sequence_id": batch.sequence_ids,
        "prompt_id": batch.prompt_ids,
        "prompt": batch.prompts,
        "reference": batch.references,
    }
    texts |= {} if batch.texts is None else {"text": batch.texts}
    return {
        "step": np.full(count, batch.step, np.int64),
        "rank": np.full(count, rank, np.int32),
        "group_id": [str(group) for group in batch.group_ids_B.tolist()],
        "text": [None] * count,
        **{name: [clean_text(text) for text in column] for name, column in texts.items()},
    }


def _figure_columns(batch: RolloutBatch) -> dict[str, object]:
    count = len(batch.sequence_ids)
    unknown = [None] * count
    components = {name: np.asarray(values).tolist() for name, values in batch.components.items()}
    optional = {
        "correct": batch.correct_B,
        "truncated": batch.truncated_B,
        "advantage": batch.advantages_B,
        "staleness": batch.staleness_B,
        "entropy_mean": _token_mean(batch.entropy_BT, batch.mask_BT),
    }
    return {
        "length": batch.lengths_B,
        "reward": np.asarray(batch.rewards_B, np.float64),
        "components": [
            [(name, values[row]) for name, values in components.items()] for row in range(count)
        ],
        **{
            name: unknown if values is None else np.asarray(values)
            for name, values in optional.items()
        },
    }


def _token_mean(values_BT: Floats | None, mask_BT: Flags) -> NDArray[np.float64] | None:
    """Mean over the generated tokens of each response; NaN for an empty response."""
    if values_BT is None:
        return None
    totals_B = np.where(mask_BT, values_BT, 0).sum(axis=1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        means_B: NDArray[np.float64] = totals_B / mask_BT.sum(axis=1)
    return means_B


def _nonfinite(batch: RolloutBatch) -> Flags:
    """Generated tokens with a log-probability that is not finite, in the learner or the sampler."""
    nonfinite_BT = np.zeros_like(batch.mask_BT)
    for logprobs_BT in (batch.learner_logprobs_BT, batch.sampler_logprobs_BT):
        if logprobs_BT is not None:
            nonfinite_BT |= ~np.isfinite(logprobs_BT)
    return nonfinite_BT & batch.mask_BT


def _kept_in_full(
    batch: RolloutBatch, gaps: dict[str, NDArray[np.float64]] | None, depth: Depth, worst: int
) -> Flags:
    """Choose the responses that keep their per-token columns, shape (B,)."""
    count = len(batch.sequence_ids)
    if depth != "worst":
        return np.full(count, depth == "full")
    if gaps is None:
        badness_B = batch.lengths_B.astype(np.float64)
    else:
        badness_B = np.nan_to_num(gaps["logprob_diff_max"])
    badness_B = np.where(_nonfinite(batch).any(axis=1), np.inf, badness_B)
    kept_B = np.zeros(count, bool)
    kept_B[np.argsort(-badness_B, kind="stable")[:worst]] = True
    return kept_B


def _token_columns(batch: RolloutBatch, kept_B: Flags) -> dict[str, object]:
    sources: dict[str, Floats | Integers | None] = {
        "token_ids": batch.tokens_BT,
        "learner_logprobs": batch.learner_logprobs_BT,
        "sampler_logprobs": batch.sampler_logprobs_BT,
        "entropies": batch.entropy_BT,
    }
    return {
        name: [None] * kept_B.size
        if values_BT is None or not kept_B.any()
        else _token_lists(values_BT, batch.mask_BT, kept_B)
        for name, values_BT in sources.items()
    }


def _token_lists(values_BT: Floats | Integers, mask_BT: Flags, kept_B: Flags) -> pa.Array:
    """Make a list of the generated tokens' values per kept response; null for the others."""
    import pyarrow as pa

    taken_BT = mask_BT & kept_B[:, None]
    offsets = np.concatenate(([0], np.cumsum(taken_BT.sum(axis=1)))).astype(np.int32)
    kind = np.int64 if np.issubdtype(values_BT.dtype, np.integer) else np.float32
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(values_BT[taken_BT].astype(kind)), mask=pa.array(~kept_B)
    )


def _sequence_columns(batch: RolloutBatch, kept_B: Flags) -> dict[str, object]:
    """Prompt, response and the tokens of tools between, for scoring the kept responses again."""
    ids: list[list[int] | None] = [None] * kept_B.size
    sampled: list[list[int] | None] = [None] * kept_B.size
    prompts = batch.prompt_tokens or ()
    for row in np.flatnonzero(kept_B).tolist() if prompts else ():
        width = int(np.flatnonzero(batch.mask_BT[row]).max(initial=-1)) + 1
        ids[row] = [*prompts[row].tolist(), *batch.tokens_BT[row, :width].tolist()]
        sampled[row] = [*[0] * len(prompts[row]), *batch.mask_BT[row, :width].astype(int).tolist()]
    return {"sequence_token_ids": ids, "sequence_sampled": sampled}


def prepare_rollouts(directory: Path) -> None:
    """Create the folder of the rollouts files.

    Raises:
        OSError: if it cannot be created.
    """
    (directory / ROLLOUTS).mkdir(parents=True, exist_ok=True)


def load_parquet() -> None:
    """Import pyarrow in advance, so that no step waits for the import."""
    import_module("pyarrow.parquet")
    import_module("pyarrow").array([0])  # the first array triggers further imports


def rollouts_file(directory: Path, step: int, rank: int) -> Path:
    """Return the path of the rollouts of a step and rank."""
    return directory / ROLLOUTS / f"step-{step:06d}.rank-{rank}.parquet"


def write_rollouts(
    directory: Path, batch: RolloutBatch, depth: Depth = "summary", worst: int = 8, rank: int = 0
) -> Path:
    """Write the rollouts of a batch atomically.

    Raises:
        OSError: if they cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, table = (
        rollouts_file(directory, batch.step, rank),
        rollout_table(batch, depth, worst, rank),
    )
    with (
        atomic_files.atomic_path(path) as temporary,
        # Parquet is written in hundreds of small parts, each a request on a network file system.
        pa.output_stream(temporary, compression=None, buffer_size=_WRITE_BYTES) as file,
    ):
        pq.write_table(table, file, compression="zstd")
    return path


def rollout_files(directory: Path) -> dict[int, list[Path]]:
    """Return the rollouts files of a run by step, in order of step and rank."""
    found: defaultdict[int, list[tuple[int, Path]]] = defaultdict(list)
    folder = directory / ROLLOUTS
    for path in folder.iterdir() if folder.is_dir() else ():
        if match := _FILE.fullmatch(path.name):
            found[int(match[1])].append((int(match[2]), path))
    return {step: [path for _, path in sorted(found[step])] for step in sorted(found)}


def read_rollouts(directory: Path, step: int) -> pa.Table:
    """Read the rollouts of a step, all ranks, in order of rank.

    Raises:
        RunError: if the step has none, or a file cannot be read.
    """
    import pyarrow as pa

    files = rollout_files(directory).get(step, [])
    if not files:
        raise RunError(
            f"no rollouts for step {step}",
            where=str(directory / ROLLOUTS),
            remedy="record with a depth other than off, or choose a recorded step",
        )
    return pa.concat_tables([_read_file(path) for path in files])


def _read_file(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, partitioning=None)
        table.validate(full=True)  # text that is not UTF-8 would raise where it is used
    except (OSError, pa.ArrowException) as error:
        raise RunError(
            f"a rollouts file cannot be read: {error}", where=str(path), remedy="delete it"
        ) from error
    return table
