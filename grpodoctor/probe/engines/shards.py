"""Reading shards, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grpodoctor.errors import EngineError
from grpodoctor.probe import contract
from grpodoctor.probe.contract import Shard, shard_paths


def read_shard(path: Path) -> Shard:
    """Read one shard.

    Raises:
        EngineError: if it is missing, damaged or too large, or its arrays do not fit together.
    """
    try:
        return contract.read_shard(path)
    except contract.RefusalError as refusal:
        raise EngineError(refusal.what, where=str(path), remedy=refusal.remedy) from refusal


def read_shards(folder: Path) -> Iterator[Shard]:
    """All shards of a folder in order, one at a time."""
    for path in shard_paths(folder):
        yield read_shard(path)


def read_pairs(sampled: Path, scored: Path) -> Iterator[tuple[Shard, Shard]]:
    """Pairs of shards with the same name from two folders.

    Raises:
        EngineError: if a shard is missing or its tokens differ from those of its partner.
    """
    for path in shard_paths(sampled):
        sampled_shard, scored_shard = read_shard(path), read_shard(scored / path.name)
        if not sampled_shard.same_tokens(scored_shard):
            raise EngineError(
                "the engine scored other tokens than it was given",
                where=str(scored / path.name),
                remedy="read the log of its program",
            )
        yield sampled_shard, scored_shard
