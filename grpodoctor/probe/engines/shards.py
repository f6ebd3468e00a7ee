"""The shards that engine programs write, read back and checked. They may hold anything."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError

_MOST_BYTES = 2 << 30
"""Of one shard, unpacked: more is not what a program of ours writes."""
_MOST_LAYERS = 4096
"""With routers: more is no model, and something is kept of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Some responses and what one engine says of their N tokens, one after the other.

    L layers with routers, K experts a token, T the contract's temperatures. None is not told.
    """

    prompt_ids_P: NDArray[np.int32]
    prompt_offsets: NDArray[np.int64]
    response_ids_N: NDArray[np.int32]
    response_offsets: NDArray[np.int64]
    logprobs_N: NDArray[np.float32]
    """NaN where the engine gave none."""
    prompt_B: NDArray[np.int32]
    sample_B: NDArray[np.int32]
    ended_B: NDArray[np.bool_]
    cached_B: NDArray[np.int32]
    entropy_N: NDArray[np.float32] | None = None
    rank_N: NDArray[np.int32] | None = None
    mass_above_N: NDArray[np.float32] | None = None
    top_logprob_N: NDArray[np.float32] | None = None
    at_temperature_NT: NDArray[np.float32] | None = None
    experts_NLK: NDArray[np.int16] | None = None
    router_margin_NL: NDArray[np.float32] | None = None

    @property
    def lengths_B(self) -> NDArray[np.int64]:
        """Tokens of each response."""
        return np.diff(self.response_offsets)

    @property
    def rows_N(self) -> NDArray[np.int64]:
        """Which response each token belongs to."""
        return np.repeat(np.arange(len(self.lengths_B)), self.lengths_B)

    @property
    def positions_N(self) -> NDArray[np.int64]:
        """Where in its response each token stands, from 0."""
        return np.arange(len(self.response_ids_N)) - self.response_offsets[self.rows_N]

    def same_tokens(self, other: Shard) -> bool:
        """Whether both speak of the same responses, token by token."""
        return np.array_equal(self.response_offsets, other.response_offsets) and np.array_equal(
            self.response_ids_N, other.response_ids_N
        )


def read_shard(path: Path) -> Shard:
    """Read one shard.

    Raises:
        EngineError: if it is missing, damaged, too large, or its arrays do not fit each other.
    """
    try:
        _bounded(path)
        with np.load(path, allow_pickle=False) as arrays:
            shard = Shard(**{name: arrays[name] for name in arrays.files})
        _check(shard)
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise EngineError(
            f"what the engine has written cannot be used: {' '.join(str(error).split())[:200]}",
            where=str(path),
            remedy="delete it and probe again",
        ) from error
    return shard


def _bounded(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > _MOST_BYTES:
        raise ValueError(f"{size} bytes in one shard")


_REAL = (
    "logprobs_",
    "entropy_",
    "mass_above_",
    "top_logprob_",
    "at_temperature_",
    "router_margin_",
)


def _check_kinds(shard: Shard) -> None:
    """Every array has the number of axes that its name says, and the kind of number."""
    for name in Shard.__dataclass_fields__:
        values = getattr(shard, name)
        if values is None:
            continue
        axes = 1 if name.endswith("offsets") else len(name.rpartition("_")[2])
        kinds = "f" if name.startswith(_REAL) else "b" if name == "ended_B" else "iu"
        if values.ndim != axes or values.dtype.kind not in kinds:
            raise ValueError(f"{name} has {values.ndim} axes of {values.dtype}")


def _check(shard: Shard) -> None:
    _check_kinds(shard)
    if shard.experts_NLK is not None and shard.experts_NLK.shape[1] > _MOST_LAYERS:
        raise ValueError(f"experts in {shard.experts_NLK.shape[1]} layers")
    responses, tokens = len(shard.prompt_B), len(shard.response_ids_N)
    for name, ids, offsets in (
        ("prompt", shard.prompt_ids_P, shard.prompt_offsets),
        ("response", shard.response_ids_N, shard.response_offsets),
    ):
        whole = len(offsets) == responses + 1 and offsets[0] == 0 and offsets[-1] == len(ids)
        if not whole or (np.diff(offsets) < 0).any():
            raise ValueError(f"the {name} offsets do not fit {responses} responses")
    for name in Shard.__dataclass_fields__:
        values = getattr(shard, name)
        if values is not None and name.endswith(("_N", "_NT", "_NLK", "_NL")):
            if len(values) != tokens:
                raise ValueError(f"{name} has {len(values)} rows for {tokens} tokens")
        elif values is not None and name.endswith("_B") and len(values) != responses:
            raise ValueError(f"{name} has {len(values)} rows for {responses} responses")


def shard_paths(folder: Path) -> list[Path]:
    """The shards of a folder, in order."""
    return sorted(folder.glob("shard-*.npz"))


def read_shards(folder: Path) -> Iterator[Shard]:
    """All shards of a folder in order, one at a time."""
    for path in shard_paths(folder):
        yield read_shard(path)


def read_pairs(sampled: Path, scored: Path) -> Iterator[tuple[Shard, Shard]]:
    """Shards of two folders side by side.

    Raises:
        EngineError: if one is missing or speaks of other tokens than its partner.
    """
    for path in shard_paths(sampled):
        left, right = read_shard(path), read_shard(scored / path.name)
        if not left.same_tokens(right):
            raise EngineError(
                "the engine has scored other tokens than it was given",
                where=str(scored / path.name),
                remedy="look at its program's log",
            )
        yield left, right
