"""Whether an engine has done what it was asked for: what it wrote is looked at before its use."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.engines.jobs import Sampling
from grpodoctor.probe.engines.shards import Shard, read_pairs, read_shards

_MOST_IDS_BYTES = 1 << 30
_ROUNDING = 1e-2
"""A log-probability above zero by no more than this is rounding, in 16 bits."""


def check_sampled(folder: Path, sampling: Sampling, prompts: int | None, vocabulary: int) -> None:
    """Look at responses that an engine has drawn.

    Args:
        folder: its shards.
        sampling: how they were to be drawn.
        prompts: how many prompts it was given; None where it has its responses already.
        vocabulary: how many tokens it says to know; 0 where it does not.

    Raises:
        EngineError: if there are too few or too many responses, one is empty or longer than asked
            for, an id lies beyond the vocabulary, or there are no log-probabilities.
    """
    counts = np.zeros(prompts or 0, np.int64)
    responses = tokens = 0
    logprobs = False
    for shard in read_shards(folder):
        _check_shard(shard, None if prompts is None else sampling.max_tokens, vocabulary)
        if prompts is not None:
            counts += _per_prompt(shard, prompts)
        responses += len(shard.prompt_B)
        tokens += len(shard.response_ids_N)
        logprobs |= bool(np.isfinite(shard.logprobs_N).any())
    if prompts is not None and (counts != sampling.samples).any():
        raise EngineError(
            f"it has given {responses} responses where {prompts} prompts x {sampling.samples} "
            "samples were asked for"
        )
    if not tokens:
        raise EngineError("it has given no tokens", remedy="look whether it can sample at all")
    if not logprobs:
        raise EngineError(
            "it has given tokens without log-probabilities, or none of them is a number",
            remedy="switch them on in the engine or its server; if they are, use a wider dtype",
        )


def _check_shard(shard: Shard, longest: int | None, vocabulary: int) -> None:
    lengths_B = shard.lengths_B
    if len(lengths_B) and lengths_B.min() < 1:
        raise EngineError("it has given a response without tokens")
    if longest is not None and len(lengths_B) and lengths_B.max() > longest:
        raise EngineError(
            f"it has given {lengths_B.max()} tokens where at most {longest} were asked for"
        )
    for ids in (shard.prompt_ids_P, shard.response_ids_N):
        if len(ids) and not 0 <= ids.min() <= ids.max() < (vocabulary or ids.max() + 1):
            raise EngineError(
                f"it has given the id {ids.max() if ids.min() >= 0 else ids.min()} with a "
                f"vocabulary of {vocabulary} tokens"
            )
    _check_logprobs(shard)


def _check_logprobs(shard: Shard) -> None:
    if (shard.logprobs_N > _ROUNDING).any():
        raise EngineError(
            f"it has given log-probabilities above zero, up to {np.nanmax(shard.logprobs_N):.3g}"
        )


def _per_prompt(shard: Shard, prompts: int) -> np.ndarray:
    """How many responses each prompt has in a shard."""
    if len(shard.prompt_B) and not 0 <= shard.prompt_B.min() <= shard.prompt_B.max() < prompts:
        raise EngineError(f"it has answered a prompt that is none of the {prompts}")
    return np.bincount(shard.prompt_B, minlength=prompts)


def check_scored(rollouts: Path, folder: Path) -> None:
    """Look at the log-probabilities that an engine has given to responses.

    Raises:
        EngineError: if it has scored other tokens, left some out, or given no log-probabilities.
    """
    logprobs = False
    for _, scored in read_pairs(rollouts, folder):
        _check_logprobs(scored)
        logprobs |= bool(np.isfinite(scored.logprobs_N).any())
    if not logprobs:
        raise EngineError(
            "it has given no log-probabilities, or none of them is a number",
            remedy="look whether it can score prompts at all; if it can, use a wider dtype",
        )


def check_ids(path: Path, prompts: int) -> None:
    """Look at the ids that an engine has given for the prompts.

    Raises:
        EngineError: if they are not one list of ids for each prompt.
    """
    if len(read_ids(path)) != prompts:
        raise EngineError(f"it has not given ids for each of {prompts} prompts", where=str(path))


def read_ids(path: Path) -> list[list[int]]:
    """What a task of the kind `tokenise` has written.

    Raises:
        EngineError: if it is not a list of lists of ids.
    """
    try:
        size = path.stat().st_size
        ids = json.loads(path.read_text(encoding="utf-8")) if size <= _MOST_IDS_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(
            f"the ids of the prompts cannot be read: {str(error)[:200]}", where=str(path)
        ) from error
    if not isinstance(ids, list) or not all(map(_is_ids, ids)):
        raise EngineError("it has given something else than ids of prompts", where=str(path))
    return ids


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)
