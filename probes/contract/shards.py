"""Shards: `.npz` files with the responses of a task and one engine's values for their tokens."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .datatypes import RefusalError, Response

_DTYPES: dict[str, Any] = {
    "prompt_ids_P": np.int32,
    "prompt_offsets": np.int64,
    "response_ids_N": np.int32,
    "response_offsets": np.int64,
    "logprobs_N": np.float32,
    "prompt_B": np.int32,
    "sample_B": np.int32,
    "ended_B": np.bool_,
    "cached_B": np.int32,
    "entropy_N": np.float32,
    "rank_N": np.int32,
    "mass_above_N": np.float32,
    "top_logprob_N": np.float32,
    "likeliest_NM": np.int32,
    "likeliest_logprob_NM": np.float32,
    "at_temperature_NT": np.float32,
    "experts_NLK": np.int16,
    "router_margin_NL": np.float32,
}
_MAX_BYTES = 2 << 30
"""Largest size of a shard, uncompressed; engine programs write much less."""
_MAX_ROUTER_LAYERS = 4096
"""No model has more; a comparison keeps values for each layer."""


@dataclass(frozen=True)
class Shard:
    """B responses with N tokens in total, concatenated, and one engine's values for the tokens.

    P prompt tokens, L layers with routers, K experts per token, M likeliest tokens, T the
    `TEMPERATURES`. None means that the engine did not return the column.
    """

    prompt_ids_P: NDArray[np.int32]
    prompt_offsets: NDArray[np.int64]
    """B + 1 offsets into `prompt_ids_P`."""
    response_ids_N: NDArray[np.int32]
    response_offsets: NDArray[np.int64]
    """B + 1 offsets into the columns with N rows."""
    logprobs_N: NDArray[np.float32]
    """NaN where the engine returned none."""
    prompt_B: NDArray[np.int32]
    sample_B: NDArray[np.int32]
    ended_B: NDArray[np.bool_]
    cached_B: NDArray[np.int32]
    entropy_N: NDArray[np.float32] | None = None
    rank_N: NDArray[np.int32] | None = None
    mass_above_N: NDArray[np.float32] | None = None
    top_logprob_N: NDArray[np.float32] | None = None
    likeliest_NM: NDArray[np.int32] | None = None
    likeliest_logprob_NM: NDArray[np.float32] | None = None
    at_temperature_NT: NDArray[np.float32] | None = None
    experts_NLK: NDArray[np.int16] | None = None
    router_margin_NL: NDArray[np.float32] | None = None

    @property
    def lengths_B(self) -> NDArray[np.int64]:
        """Tokens of each response."""
        return np.diff(self.response_offsets)

    @property
    def rows_N(self) -> NDArray[np.int64]:
        """Index of the response that each token belongs to."""
        return np.repeat(np.arange(len(self.lengths_B)), self.lengths_B)

    @property
    def positions_N(self) -> NDArray[np.int64]:
        """Position of each token in its response, from 0."""
        return np.arange(len(self.response_ids_N)) - self.response_offsets[self.rows_N]

    def same_tokens(self, other: Shard) -> bool:
        """Whether both shards hold the same responses, token by token."""
        return np.array_equal(self.response_offsets, other.response_offsets) and np.array_equal(
            self.response_ids_N, other.response_ids_N
        )


def shard_paths(folder: Path) -> list[Path]:
    """The shards of a folder, in order."""
    return sorted(folder.glob("shard-*.npz"))


def write_shard(path: Path, responses: Sequence[Response]) -> None:
    """Write responses as one shard, under a temporary name that is then renamed.

    A column of `WANTS` is written if all responses have it.
    """
    prompts = [response.prompt_ids for response in responses]
    tokens = [response.response_ids for response in responses]
    logprobs = [
        [np.nan] * len(response.response_ids) if response.logprobs is None else response.logprobs
        for response in responses
    ]
    columns: dict[str, Any] = {
        "prompt_ids_P": _concatenated(prompts, np.int32),
        "prompt_offsets": _offsets(prompts),
        "response_ids_N": _concatenated(tokens, np.int32),
        "response_offsets": _offsets(tokens),
        "logprobs_N": _concatenated(logprobs, np.float32),
        "prompt_B": [response.prompt for response in responses],
        "sample_B": [response.sample for response in responses],
        "ended_B": [response.ended for response in responses],
        "cached_B": [response.cached for response in responses],
    }
    for column in [name for name in _DTYPES if name not in columns]:
        name = column.rpartition("_")[0]
        if responses and all(name in response.extras for response in responses):
            parts = [np.asarray(response.extras[name]) for response in responses]
            columns[column] = np.concatenate(parts)
    arrays = {name: np.asarray(values, _DTYPES[name]) for name, values in columns.items()}
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # stubs: allow_pickle
    temporary.replace(path)


def _concatenated(parts: Sequence[Sequence[Any]], dtype: Any) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype) for part in parts] or [np.empty(0, dtype)])


def _offsets(parts: Sequence[Sequence[Any]]) -> np.ndarray:
    return np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)


_DAMAGE = (
    *(OSError, ValueError, TypeError, KeyError, EOFError),
    *(RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error),
)
"""Errors of a damaged archive; a flipped bit may call it encrypted or packed in another way."""


def read_shard(path: Path) -> Shard:
    """Read and check one shard; it may hold anything.

    Raises:
        RefusalError: if it is missing, damaged or too large, or its arrays do not fit together.
    """
    try:
        _check_size(path)
        with np.load(path, allow_pickle=False) as arrays:
            shard = Shard(**{name: arrays[name] for name in arrays.files})
        _check_columns(shard)
        _check_rows(shard)
    except _DAMAGE as error:
        raise RefusalError(
            f"the shard {path.name} cannot be used: {' '.join(str(error).split())[:200]}",
            "delete it and run the probe again",
        ) from error
    return shard


def _check_size(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > _MAX_BYTES:
        raise ValueError(f"it has {size} bytes")


def _columns(shard: Shard) -> list[tuple[str, np.ndarray]]:
    columns = [(column.name, getattr(shard, column.name)) for column in fields(shard)]
    return [(name, values) for name, values in columns if values is not None]


def _check_columns(shard: Shard) -> None:
    """Check the number of axes, which the suffix of the name states, and the kind of number."""
    for name, values in _columns(shard):
        axes = 1 if name.endswith("_offsets") else len(name.rpartition("_")[2])
        kind = np.dtype(_DTYPES[name]).kind
        if values.ndim != axes or values.dtype.kind not in ("iu" if kind == "i" else kind):
            raise ValueError(f"{name} has {values.ndim} axes of {values.dtype}")
    if shard.experts_NLK is not None and shard.experts_NLK.shape[1] > _MAX_ROUTER_LAYERS:
        raise ValueError(f"experts in {shard.experts_NLK.shape[1]} layers")


def _check_rows(shard: Shard) -> None:
    responses, tokens = len(shard.prompt_B), len(shard.response_ids_N)
    for name, ids, offsets in (
        ("prompt", shard.prompt_ids_P, shard.prompt_offsets),
        ("response", shard.response_ids_N, shard.response_offsets),
    ):
        is_whole = len(offsets) == responses + 1 and offsets[0] == 0 and offsets[-1] == len(ids)
        if not is_whole or (np.diff(offsets) < 0).any():
            raise ValueError(f"the {name} offsets do not fit {responses} responses")
    for name, values in _columns(shard):
        suffix = name.rpartition("_")[2]
        if suffix.startswith("N") and len(values) != tokens:
            raise ValueError(f"{name} has {len(values)} rows for {tokens} tokens")
        if suffix == "B" and len(values) != responses:
            raise ValueError(f"{name} has {len(values)} rows for {responses} responses")


def read_responses(path: Path, *, with_experts: bool = False) -> list[Response]:
    """The responses of a shard, without log-probabilities, to be scored.

    Args:
        path: of the shard.
        with_experts: whether to add `experts` to the extras of each response.

    Raises:
        RefusalError: if the shard is damaged, or experts are requested and it has none.
    """
    shard = read_shard(path)
    prompts = np.split(shard.prompt_ids_P, shard.prompt_offsets[1:-1])
    tokens = np.split(shard.response_ids_N, shard.response_offsets[1:-1])
    indices = (column.tolist() for column in (shard.prompt_B, shard.sample_B, shard.ended_B))
    responses = [
        Response(prompt_ids.tolist(), response_ids.tolist(), None, prompt, sample, ended)
        for prompt_ids, response_ids, prompt, sample, ended in zip(
            prompts, tokens, *indices, strict=True
        )
    ]
    if with_experts:
        if shard.experts_NLK is None:
            raise RefusalError(
                f"{path} has no routed experts to replay",
                "sample from an engine that returns them, with experts in want",
            )
        parts = np.split(shard.experts_NLK, shard.response_offsets[1:-1])
        for response, experts_NLK in zip(responses, parts, strict=True):
            response.extras["experts"] = experts_NLK
    return responses
