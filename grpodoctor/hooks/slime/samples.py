"""slime's samples as a batch to measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.frameworks.rollout_formats.columns import clean, text_of
from grpodoctor.measure.batch import RolloutBatch

Array = NDArray[Any]


def rollout_batch(step: int, args: Any, samples: Sequence[Any]) -> RolloutBatch:
    """Copy the samples of a rollout.

    Tokens of tools and environments, which slime's `loss_mask` leaves out, are not counted as
    generated, as in slime's own lengths.

    Args:
        step: number of the rollout.
        args: slime's arguments.
        samples: slime's `Sample` objects.
    """
    responses = [_generated(each) for each in samples]
    masks = [each.loss_mask or [1] * each.response_length for each in samples]
    logprobs = [each.rollout_log_probs for each in samples]
    are_known = all(
        each.rollout_log_probs is not None and len(each.rollout_log_probs) == each.response_length
        for each in samples
    )
    return RolloutBatch(
        step=step,
        sequence_ids=[f"{step}-{row}" for row in range(len(samples))],
        group_ids_B=_groups(samples),
        prompt_ids=[str(each.group_index) for each in samples],
        prompts=[clean(text_of(each.prompt)) for each in samples],
        references=[clean(str(each.label or "")) for each in samples],
        tokens_BT=_padded(responses, np.int64),
        mask_BT=_padded(masks, np.int64) > 0,
        rewards_B=np.array([float(each.get_reward_value(args)) for each in samples]),
        texts=[clean(each.response) for each in samples],
        truncated_B=np.array([each.status.value == "truncated" for each in samples]),
        components=_components(samples),
        sampler_logprobs_BT=_padded(logprobs, np.float32) if are_known else None,
        prompts_are_whole=not any(map(_has_hidden_task, samples, masks)),
    )


def _generated(sample: Any) -> list[int]:
    """The tokens after the prompt."""
    return list(sample.tokens)[len(sample.tokens) - sample.response_length :]


def _has_hidden_task(sample: Any, mask: Sequence[int]) -> bool:
    """Whether an image belongs to the prompt, or an environment answered the policy."""
    has_image = bool(getattr(sample, "multimodal_inputs", None))
    return has_image or (0 in mask and 1 in mask)


def _groups(samples: Sequence[Any]) -> Array:
    """One id per prompt; a sample without a group forms a group alone."""
    names = [
        f"row {row}" if each.group_index is None else str(each.group_index)
        for row, each in enumerate(samples)
    ]
    ids: Array = np.unique(names, return_inverse=True)[1]
    return ids


def _components(samples: Sequence[Any]) -> dict[str, Array]:
    """The named rewards that all samples have, if the reward function returned several."""
    if not all(isinstance(each.reward, dict) for each in samples):
        return {}
    shared = set.intersection(*(set(each.reward) for each in samples))
    columns = {str(name): [each.reward[name] for each in samples] for name in sorted(shared)}
    return {
        clean(name): np.array(values, np.float64)
        for name, values in columns.items()
        if all(isinstance(value, int | float) for value in values)
    }


def _padded(rows: Sequence[Any], kind: Any) -> Array:
    width = max((len(row) for row in rows), default=0)
    padded: Array = np.zeros((len(rows), width), kind)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded
