"""The responses of a SkyRL step, from the generator's output and the batch that was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.frameworks.rollout_formats.columns import clean
from grpodoctor.hooks.arrays import masked_means
from grpodoctor.measure.batch import RolloutBatch

Array = NDArray[Any]

COLUMNS = ("loss_mask", "advantages", "action_log_probs", "rollout_logprobs")
"""Columns of a `TrainingInputBatch` that are recorded; SkyRL may add rows at the end."""


@dataclass(frozen=True, slots=True)
class Generated:
    """What the generator returned for a step, after the trainer processed its rewards."""

    output: Mapping[str, Any]
    """`GeneratorOutput` of SkyRL, with one list of rewards per response."""
    uids: Sequence[str]
    """One id per prompt, repeated for its responses."""


def rollout_batch(
    step: int, generated: Generated, batch: Mapping[str, Array], tokenizer: Any
) -> RolloutBatch:
    """The responses of a step.

    Args:
        step: the trainer's step.
        generated: output of the generator.
        batch: copies of `COLUMNS` of the training batch, whose rows are in the same order.
        tokenizer: decodes prompts and responses.
    """
    output = generated.output
    responses = [list(ids) for ids in output["response_ids"]]
    lengths_B = np.array([len(ids) for ids in responses])
    count, width = len(responses), int(lengths_B.max())
    mask_BT = np.arange(width)[None] < lengths_B[:, None]
    tokens_BT = np.zeros((count, width), np.int64)
    tokens_BT[mask_BT] = [token for ids in responses for token in ids]

    def column(name: str) -> Array | None:
        values = batch.get(name)
        return None if values is None else _left_aligned(values[:count], lengths_B)

    loss_mask_BT = column("loss_mask")
    advantages_BT = column("advantages")
    in_loss_BT = mask_BT if loss_mask_BT is None else (loss_mask_BT > 0) & mask_BT
    reasons = output.get("stop_reasons")
    return RolloutBatch(
        step=step,
        sequence_ids=[f"{step}-{row}" for row in range(count)],
        group_ids_B=np.unique(list(generated.uids), return_inverse=True)[1],
        prompt_ids=[clean(str(uid)) for uid in generated.uids],
        prompts=_decoded(tokenizer, output["prompt_token_ids"]),
        references=[""] * count,
        tokens_BT=tokens_BT,
        mask_BT=mask_BT,
        rewards_B=np.array([float(sum(rewards)) for rewards in output["rewards"]]),
        texts=_decoded(tokenizer, responses),
        truncated_B=None if not reasons else np.array([each == "length" for each in reasons]),
        advantages_B=None if advantages_BT is None else masked_means(advantages_BT, in_loss_BT),
        advantages_BT=_if_they_differ(advantages_BT, in_loss_BT),
        learner_logprobs_BT=column("action_log_probs"),
        sampler_logprobs_BT=column("rollout_logprobs"),
        loss_mask_BT=None if np.array_equal(in_loss_BT, mask_BT) else in_loss_BT,
        prompt_tokens=[np.array(ids, np.int64) for ids in output["prompt_token_ids"]],
        prompts_are_whole=not _has_environment_tokens(in_loss_BT, mask_BT),
    )


def _has_environment_tokens(in_loss_BT: Array, mask_BT: Array) -> bool:
    """Whether a part of a response is not in the loss: an environment wrote it."""
    left_out_BT = mask_BT & ~in_loss_BT
    return bool((left_out_BT.any(axis=1) & in_loss_BT.any(axis=1)).any())


def _left_aligned(values_BT: Array, lengths_B: Array) -> Array:
    """Move each row's last `length` values to its start: SkyRL aligns responses on the right."""
    width = int(lengths_B.max())
    places_BT = np.arange(width)[None] + (values_BT.shape[1] - lengths_B)[:, None]
    aligned: Array = np.take_along_axis(values_BT, np.minimum(places_BT, values_BT.shape[1] - 1), 1)
    return aligned


def _if_they_differ(values_BT: Array | None, mask_BT: Array) -> Array | None:
    """The values; None if all tokens of each response have the same."""
    if values_BT is None:
        return None
    highest_B = np.where(mask_BT, values_BT, -np.inf).max(axis=1)
    lowest_B = np.where(mask_BT, values_BT, np.inf).min(axis=1)
    return values_BT if bool((highest_B > lowest_B).any()) else None


def _decoded(tokenizer: Any, ids: Sequence[Sequence[int]]) -> list[str]:
    return [clean(text) for text in tokenizer.batch_decode(ids)]
