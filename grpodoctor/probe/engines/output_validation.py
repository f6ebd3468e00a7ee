"""Validates an engine's output before it is used: its files may hold anything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.contract import Sampling, Shard
from grpodoctor.probe.engines.first_order import read_estimates
from grpodoctor.probe.engines.jobs import (
    FirstOrderJob,
    SampleJob,
    ScoreJob,
    SensitivityJob,
    Task,
    TokenizeJob,
)
from grpodoctor.probe.engines.sensitivities import read_sensitivities
from grpodoctor.probe.engines.shards import read_pairs, read_shards
from grpodoctor.probe.engines.store import JOB, Store, write_json
from grpodoctor.support.files.regular_files import read_regular

_MAX_IDS_BYTES = 1 << 30
_ROUNDING = 1e-2
"""A log-probability may exceed zero by this much: rounding in 16 bits."""


def validate_output(task: Task, *, prompts: int | None, vocabulary: int) -> None:
    """Check that the output of a task is what the task requested.

    Args:
        task: the task.
        prompts: the number of prompts; None for a record, which has its responses already.
        vocabulary: the engine's vocabulary size; 0 if the engine does not report it.

    Raises:
        EngineError: if the output is invalid.
    """
    if isinstance(task.job, SampleJob):
        _check_sampled(task.output, task.job.sampling, prompts, vocabulary)
    elif isinstance(task.job, ScoreJob):
        _check_scored(task.job.rollouts, task.output)
    elif isinstance(task.job, FirstOrderJob):
        read_estimates(task.output)
    elif isinstance(task.job, SensitivityJob):
        read_sensitivities(task.output)
    elif isinstance(task.job, TokenizeJob):
        path = task.output / "ids.json"
        if len(read_ids(path)) != prompts:
            raise EngineError(
                f"it did not return ids for each of {prompts} prompts", where=str(path)
            )


def name_recorded_prompts(task: Task, store: Store, engine: str) -> None:
    """Store the prompts of a record's responses: its own, not the probe's."""
    ids: dict[int, list[int]] = {}
    for shard in read_shards(task.output):
        prompt_ids = np.split(shard.prompt_ids_P, shard.prompt_offsets[1:-1])
        for prompt, own_ids in zip(shard.prompt_B.tolist(), prompt_ids, strict=True):
            ids[prompt] = own_ids.tolist()
    prompts = [{"ids": ids.get(prompt, [])} for prompt in range(max(ids, default=-1) + 1)]
    recorded = replace(task, prompts=store.prompts(prompts))
    write_json(task.output / JOB, recorded.description(engine))


def _check_sampled(folder: Path, sampling: Sampling, prompts: int | None, vocabulary: int) -> None:
    counts = np.zeros(prompts or 0, np.int64)
    responses = tokens = 0
    has_logprobs = False
    for shard in read_shards(folder):
        _check_responses(shard, None if prompts is None else sampling.max_tokens)
        _check_vocabulary(shard, vocabulary)
        _check_logprobs(shard)
        if prompts is not None:
            counts += _responses_per_prompt(shard, prompts)
        responses += len(shard.prompt_B)
        tokens += len(shard.response_ids_N)
        has_logprobs |= bool(np.isfinite(shard.logprobs_N).any())
    if prompts is not None and (counts != sampling.samples).any():
        raise EngineError(
            f"it returned {responses} responses instead of {prompts} prompts x {sampling.samples} "
            "samples"
        )
    if not tokens:
        raise EngineError("it returned no tokens", remedy="check that the model can generate text")
    if not has_logprobs:
        raise EngineError(
            "it returned tokens without a finite log-probability",
            remedy="enable log-probabilities in the engine or its server; if they are enabled, use "
            "a wider dtype",
        )


def _check_responses(shard: Shard, max_tokens: int | None) -> None:
    lengths_B = shard.lengths_B
    if len(lengths_B) and lengths_B.min() < 1:
        raise EngineError("it returned a response without tokens")
    if max_tokens is not None and len(lengths_B) and lengths_B.max() > max_tokens:
        raise EngineError(
            f"it returned a response of {lengths_B.max()} tokens; at most {max_tokens} were "
            "requested"
        )


def _check_vocabulary(shard: Shard, vocabulary: int) -> None:
    for ids in (shard.prompt_ids_P, shard.response_ids_N):
        if len(ids) and not 0 <= ids.min() <= ids.max() < (vocabulary or ids.max() + 1):
            invalid = ids.max() if ids.min() >= 0 else ids.min()
            raise EngineError(
                f"it returned the token id {invalid} with a vocabulary of {vocabulary} tokens"
            )


def _check_logprobs(shard: Shard) -> None:
    if (shard.logprobs_N > _ROUNDING).any():
        raise EngineError(
            f"it returned log-probabilities above zero, up to {np.nanmax(shard.logprobs_N):.3g}"
            f"{_positive_form(shard.logprobs_N)}",
            remedy="return natural logarithms of probabilities, which are never above zero",
        )


def _positive_form(values_N: np.ndarray) -> str:
    """What values without a negative one are instead of log-probabilities."""
    known = values_N[np.isfinite(values_N)]
    if (known < 0).any():
        return ""
    if (known <= 1 + _ROUNDING).all():
        return "; all are between 0 and 1, so they are probabilities"
    return "; none is negative, so they are negated log-probabilities"


def _responses_per_prompt(shard: Shard, prompts: int) -> np.ndarray:
    if len(shard.prompt_B) and not 0 <= shard.prompt_B.min() <= shard.prompt_B.max() < prompts:
        raise EngineError(f"it returned a response to a prompt that is not one of the {prompts}")
    return np.bincount(shard.prompt_B, minlength=prompts)


def _check_scored(rollouts: Path, folder: Path) -> None:
    has_logprobs = False
    for _, scored in read_pairs(rollouts, folder):
        _check_logprobs(scored)
        has_logprobs |= bool(np.isfinite(scored.logprobs_N).any())
    if not has_logprobs:
        raise EngineError(
            "it returned no finite log-probability",
            remedy="check that the engine can score prompts; if it can, use a wider dtype",
        )


def read_ids(path: Path) -> list[list[int]]:
    """The token ids that a `TokenizeJob` wrote.

    Raises:
        EngineError: if the file is not a list of lists of ids.
    """
    try:
        ids = json.loads(read_regular(path, _MAX_IDS_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise EngineError(
            f"the ids of the prompts cannot be read: {str(error)[:200]}", where=str(path)
        ) from error
    if not isinstance(ids, list) or not all(map(_are_ids, ids)):
        raise EngineError("the file does not hold the ids of prompts", where=str(path))
    return ids


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(entry) is int for entry in value)
