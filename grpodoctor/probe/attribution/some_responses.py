"""Folders with some of a part's responses, or with the same responses after other prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.contract import read_responses, shard_paths, write_shard
from grpodoctor.probe.engines.store import JOB, write_json
from grpodoctor.support.files.regular_files import read_regular

_PROMPTS = "prompts.json"


def write_some(
    folder: Path, rollouts: Path, wanted_B: Set[int], prompts: Mapping[int, list[int]]
) -> None:
    """Write some responses of a part, after other prompts where these are known.

    Args:
        folder: to write to.
        rollouts: folder of the part.
        wanted_B: numbers of the responses.
        prompts: token ids by prompt number.
    """
    first = 0
    for path in shard_paths(rollouts):
        responses = read_responses(path)
        kept = [r for number, r in enumerate(responses, first) if number in wanted_B]
        first += len(responses)
        for response in kept:
            response.prompt_ids = prompts.get(response.prompt, response.prompt_ids)
        if not (folder / path.name).exists():
            write_shard(folder / path.name, kept)
    write_json(folder / JOB, {"key": folder.name})


def write_behind(folder: Path, rollouts: Path, ids: Sequence[Mapping[str, Any]], key: str) -> None:
    """Write a part's responses after other prompts, given by `ids` in the order of prompts."""
    for path in shard_paths(rollouts):
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path.resolve())
    write_json(folder / _PROMPTS, ids)
    write_json(folder / JOB, {"key": key, "prompts": str(folder / _PROMPTS)})


def prompts_behind(folder: Path | None) -> dict[int, list[int]]:
    """The prompt ids of a folder made by `write_behind`, by prompt number."""
    if folder is None:
        return {}
    listed = json.loads(read_regular(folder / _PROMPTS))
    return {number: prompt["ids"] for number, prompt in enumerate(listed)}


def spread(tokens: Tokens, most: int) -> set[int]:
    """Responses that count, at equal distances, whose tokens are about `most` together."""
    counted_B = np.unique(tokens.rows_N[tokens.counted_N])
    step = max(1, -(-int(tokens.lengths_B[counted_B].sum()) // most))
    return set(counted_B[::step].tolist())
