"""From the captured tensors of a step to the arrays that are measured.

Shapes: B responses of this rank, T tokens of the longest response, M responses in an update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.hooks.arrays import masked_means, to_host
from grpodoctor.hooks.trl.captured import (
    CapturedStep,
    Generation,
    LossSettings,
    MicroBatch,
    Rewards,
    Update,
)
from grpodoctor.hooks.trl.clipping import clip_fields
from grpodoctor.measure.batch import RolloutBatch, UpdateBatch
from grpodoctor.measure.responses import component_name
from grpodoctor.measure.step import StepBatch
from grpodoctor.vocabulary.values import ABSENT, Mean, NotApplicable, Rate, Reading

Array = NDArray[Any]
_CAP_TOLERANCE = 1e-3
"""Relative difference of a correction weight from the plain ratio that rounding can cause."""


def step_batch(captured: CapturedStep, step: int, rank: int) -> StepBatch:
    """The batch to measure.

    Args:
        captured: at least one generation, and the complete updates.
        step: number of the step.
        rank: number of this process.
    """
    parts = [_Part(generation) for generation in captured.generations]
    width = max(part.tokens_BT.shape[1] for part in parts)
    rows = _Rows(parts)
    used = [update for update in captured.updates if update.micro_batches]
    updates = [_UpdateArrays(update, rows, width) for update in used]
    prefix = f"{step}-{rank}-"
    names = [f"{prefix}{row}" for row in range(rows.count)]
    generated = _rollouts(parts, updates, names, step, width)
    batch = _scored(generated)
    measured = [_update_batch(update, names) for update in updates]
    return StepBatch(
        rollouts=batch,
        updates=measured,
        on_policy=len(updates) == 1,
        readings={
            **_component_readings(batch),
            **_untrained_tokens(generated.mask_BT, updates),
            **_unknown(updates),
            **_times(captured),
        },
    )


class _Part:
    """A generation as arrays."""

    def __init__(self, generation: Generation) -> None:
        tensors, rewards = generation.tensors, generation.rewards
        self.generation = generation
        self.tokens_BT = to_host(tensors["completion_ids"])
        self.prompt_ids = to_host(tensors["prompt_ids"])
        self.prompt_tokens = _unpadded(self.prompt_ids, tensors.get("prompt_mask"))
        self.advantages = to_host(tensors["advantages"]).astype(np.float64)
        self.loss_mask_BT = _loss_mask(tensors)
        self.mask_BT = self._mask(tensors, rewards)
        self.arrays = {
            name: to_host(tensors[key])
            for name, key in (
                ("old", "old_per_token_logps"),
                ("sampler", "sampling_per_token_logps"),
            )
            if key in tensors
        }

    @property
    def count(self) -> int:
        return int(self.tokens_BT.shape[0])

    def _mask(self, tensors: Mapping[str, Any], rewards: Rewards) -> Array:
        """Generated tokens; TRL's mask lacks truncated responses if these are not in the loss."""
        lengths_B = np.array([len(ids) for ids in rewards.token_ids])
        within_BT: Array = np.arange(self.tokens_BT.shape[1]) < lengths_B[:, None]
        if "tool_mask" not in tensors:
            return within_BT
        tool_BT = to_host(tensors["tool_mask"]).astype(bool)
        if self.generation.masks_truncated:  # TRL has cleared these rows of the tool mask too
            tool_BT[~to_host(tensors["completion_mask"]).astype(bool).any(axis=1)] = True
        masked_BT: Array = within_BT & tool_BT
        return masked_BT

    @property
    def truncated_B(self) -> Array:
        ends, ids = self.generation.end_ids, self.generation.rewards.token_ids
        return np.array([not row or row[-1] not in ends for row in ids])

    @property
    def own_rewards(self) -> Array:
        """Rewards of this rank's responses, shape (B, functions)."""
        first = self.generation.first_row
        of_all = to_host(self.generation.rewards.per_function).astype(np.float64)
        own_BF: Array = of_all[first : first + self.count]
        return own_BF


def _loss_mask(tensors: Mapping[str, Any]) -> Array:
    mask_BT: Array = to_host(tensors["completion_mask"]).astype(bool)
    if "tool_mask" in tensors:
        mask_BT = mask_BT & to_host(tensors["tool_mask"]).astype(bool)
    return mask_BT


class _Rows:
    """Finds the responses of a micro-batch: TRL shuffles them after the generation.

    Responses with equal tokens and equal advantages are interchangeable.
    """

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._by_content: list[dict[bytes, list[int]]] = []
        self.count = 0
        for part in parts:
            content: defaultdict[bytes, list[int]] = defaultdict(list)
            for row, key in enumerate(_keys(part.prompt_ids, part.tokens_BT, part.advantages)):
                content[key].append(self.count + row)
            self._by_content.append(content)
            self.count += part.count

    def find(self, micro_batches: Sequence[MicroBatch]) -> list[int]:
        """The responses of an update, in its order."""
        uses: dict[tuple[int, bytes], Iterator[int]] = {}
        found = []
        for each in micro_batches:
            arrays = (to_host(each.tensors[key]) for key in ("prompt_ids", "completion_ids"))
            advantages = to_host(each.tensors["advantages"]).astype(np.float64)
            for key in _keys(*arrays, advantages):
                rows = self._by_content[each.generation][key]
                row = next(uses.get((each.generation, key), iter(())), None)
                if row is None:  # also when an update repeats a response
                    uses[each.generation, key] = remaining = iter(rows)
                    row = next(remaining)
                found.append(row)
        return found


def _keys(*arrays: Array) -> list[bytes]:
    """The content of each row of the arrays."""
    tables = [each if each.ndim > 1 else each[:, None] for each in arrays]
    bytes_BN = np.concatenate([np.ascontiguousarray(each).view(np.uint8) for each in tables], 1)
    return [row.tobytes() for row in bytes_BN]


@dataclass
class _UpdateArrays:
    """An update as arrays."""

    update: Update
    rows: _Rows
    width: int

    def __post_init__(self) -> None:
        batches = self.update.micro_batches
        self.places = self.rows.find(batches)
        self.new_MT = self._joined([to_host(each.logprobs) for each in batches])
        self.mask_MT = self._joined([_loss_mask(each.tensors) for each in batches])
        self.advantages_MT = self._joined(
            [_per_token(to_host(b.tensors["advantages"]), b.logprobs.shape) for b in batches]
        )
        old_MT = self._tensor("old_per_token_logps")
        self.old_MT = self.new_MT if old_MT is None else old_MT
        self.entropy_MT = None
        if all(each.entropies is not None for each in batches):
            self.entropy_MT = self._joined([to_host(each.entropies) for each in batches])
        self.reference_MT = self._tensor("ref_per_token_logps")
        self.sampler_MT = self._tensor("sampling_per_token_logps")
        self.weights_MT = self._tensor("importance_sampling_ratio")

    def _tensor(self, key: str) -> Array | None:
        batches = self.update.micro_batches
        if not all(key in each.tensors for each in batches):
            return None
        return self._joined(
            [np.broadcast_to(to_host(each.tensors[key]), each.logprobs.shape) for each in batches]
        )

    def _joined(self, arrays: Sequence[Array]) -> Array:
        return np.concatenate([_padded(array, self.width) for array in arrays])


def _per_token(values: Array, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(values[:, None] if values.ndim == 1 else values, shape)


def _padded(array_BT: Array, width: int) -> Array:
    missing = width - array_BT.shape[1]
    return np.pad(array_BT, ((0, 0), (0, missing))) if missing else array_BT


def _rollouts(
    parts: Sequence[_Part],
    updates: Sequence[_UpdateArrays],
    names: list[str],
    step: int,
    width: int,
) -> RolloutBatch:
    def joined(arrays: Sequence[Array]) -> Array:
        return np.concatenate([_padded(array, width) for array in arrays])

    def joined_if_all_have(name: str) -> Array | None:
        if not all(name in part.arrays for part in parts):
            return None
        return joined([part.arrays[name] for part in parts])

    old_BT = joined_if_all_have("old")
    mask_BT = joined([part.mask_BT for part in parts])
    loss_mask_BT = joined([part.loss_mask_BT for part in parts])
    advantages = [part.advantages for part in parts]
    is_per_token = any(array.ndim == 2 for array in advantages)
    advantages_BT = joined(advantages) if is_per_token else None
    learner_BT = old_BT if old_BT is not None else _first_pass(updates, "new_MT", mask_BT.shape)
    prompts = _prompts(parts)
    prompt_ids = {each: blake2b(each.encode(), digest_size=8).hexdigest() for each in set(prompts)}
    return RolloutBatch(
        step=step,
        sequence_ids=names,
        group_ids_B=_groups(parts),
        prompt_ids=[prompt_ids[each] for each in prompts],
        prompts=prompts,
        references=[""] * len(names),
        tokens_BT=joined([part.tokens_BT for part in parts]),
        mask_BT=mask_BT,
        rewards_B=np.concatenate([_total_rewards(part) for part in parts]),
        texts=_texts(parts),
        truncated_B=np.concatenate([part.truncated_B for part in parts]),
        components=_components(parts),
        advantages_B=np.concatenate(advantages)
        if advantages_BT is None
        else masked_means(advantages_BT, loss_mask_BT),
        advantages_BT=advantages_BT,
        learner_logprobs_BT=learner_BT,
        sampler_logprobs_BT=joined_if_all_have("sampler"),
        old_logprobs_BT=old_BT,
        entropy_BT=_first_pass(updates, "entropy_MT", mask_BT.shape),
        loss_mask_BT=None if np.array_equal(loss_mask_BT, mask_BT) else loss_mask_BT,
        prompt_tokens=_prompt_tokens(parts),
        prompts_are_whole=all(part.generation.prompts_are_whole for part in parts),
    )


def _unpadded(ids_BP: Array, mask: Any) -> list[Array] | None:
    """Each prompt's ids without padding; None if the padding is not known."""
    if mask is None:
        return None
    mask_BP = to_host(mask).astype(bool)
    return [ids_P[own_P] for ids_P, own_P in zip(ids_BP, mask_BP, strict=True)]


def _prompt_tokens(parts: Sequence[_Part]) -> list[Array] | None:
    known = [part.prompt_tokens for part in parts if part.prompt_tokens is not None]
    return [ids for part in known for ids in part] if len(known) == len(parts) else None


def _first_pass(
    updates: Sequence[_UpdateArrays], name: str, shape: tuple[int, ...]
) -> Array | None:
    """The scores of every response in its first update; None if a response was in no update.

    A response with several updates before its own was scored by weights that have changed a little
    since the sampling.
    """
    values_BT = np.zeros(shape, np.float32)
    seen_B = np.zeros(shape[0], bool)
    for update in updates:
        scores_MT = getattr(update, name)
        if scores_MT is None:
            return None
        for place, row in enumerate(update.places):
            if not seen_B[row]:
                values_BT[row], seen_B[row] = scores_MT[place], True
    return values_BT if seen_B.all() else None


def _groups(parts: Sequence[_Part]) -> Array:
    """Equal numbers for the responses to a prompt, also on different ranks."""
    groups = []
    for number, part in enumerate(parts):
        rows = part.generation.first_row + np.arange(part.count)
        groups.append(rows // part.generation.group_size + (number << 32))
    return np.concatenate(groups)


def _total_rewards(part: _Part) -> Array:
    """The weighted sum over the functions that scored a response; if none did, NaN since 1.14."""
    rewards_BF = part.own_rewards
    weights_F = to_host(part.generation.rewards.weights).astype(np.float64)
    totals_B: Array = np.nansum(rewards_BF * weights_F, axis=1)
    if part.generation.leaves_out_unscored:
        totals_B[np.isnan(rewards_BF).all(axis=1)] = np.nan
    return totals_B


def _components(parts: Sequence[_Part]) -> dict[str, Array]:
    """The reward of each function, if there are several; NaN where a function gave none."""
    components: defaultdict[str, list[Array]] = defaultdict(list)
    for part in parts:
        names = part.generation.rewards.names
        for name, values_B in zip(names, part.own_rewards.T, strict=True):
            components[name].append(values_B)
    joined = {name: np.concatenate(each) for name, each in components.items()}
    return {name: each for name, each in joined.items() if not np.isnan(each).all()}


def _component_readings(batch: RolloutBatch) -> dict[str, Reading]:
    """Means over the responses that a function scored, as in TRL."""
    return {
        f"reward/component/{component_name(name)}/mean": Mean.of(values_B[~np.isnan(values_B)])
        for name, values_B in batch.components.items()
        if np.isnan(values_B).any()
    }


def _scored(batch: RolloutBatch) -> RolloutBatch:
    """The responses that any function scored: TRL takes the others as failed, without advantage.

    If none was scored at all, the NaN stays in the record.
    """
    scored_B = ~np.isnan(batch.rewards_B)
    return _chosen(batch, scored_B) if scored_B.any() and not scored_B.all() else batch


def _chosen(batch: RolloutBatch, rows_B: Array) -> RolloutBatch:
    """Some of the responses of a batch."""
    chosen: dict[str, Any] = {}
    for entry in fields(batch):
        value = getattr(batch, entry.name)
        if isinstance(value, np.ndarray):
            chosen[entry.name] = value[rows_B]
        elif isinstance(value, list):
            chosen[entry.name] = [each for each, kept in zip(value, rows_B, strict=True) if kept]
    chosen["components"] = {name: each[rows_B] for name, each in batch.components.items()}
    return replace(batch, **chosen)


def _prompts(parts: Sequence[_Part]) -> list[str]:
    return [prompt for part in parts for prompt in part.generation.rewards.prompts]


def _texts(parts: Sequence[_Part]) -> list[str]:
    return [text for part in parts for text in part.generation.rewards.texts]


def _update_batch(scored: _UpdateArrays, names: Sequence[str]) -> UpdateBatch:
    update = scored.update
    losses = [float(to_host(each.loss)) for each in update.micro_batches]
    norm = None if update.grad_norm is None else float(to_host(update.grad_norm))
    return UpdateBatch(
        sequence_ids=[names[row] for row in scored.places],
        new_logprobs_BT=scored.new_MT,
        old_logprobs_BT=scored.old_MT,
        advantages_BT=scored.advantages_MT,
        loss_mask_BT=scored.mask_MT,
        loss=sum(losses),
        grad_norm=norm or 0.0,
        learning_rate=update.learning_rate or 0.0,
        entropy_BT=scored.entropy_MT,
        reference_logprobs_BT=scored.reference_MT,
        weights_BT=scored.weights_MT,
        capped_BT=_capped(scored, update.settings),
        **clip_fields(
            update.settings, scored.new_MT, scored.old_MT, scored.advantages_MT, scored.mask_MT
        ),
    )


def _capped(scored: _UpdateArrays, settings: LossSettings) -> Array | None:
    """Tokens whose correction weight is not the plain ratio."""
    if scored.weights_MT is None or scored.sampler_MT is None:
        return None
    gaps_MT = np.where(scored.mask_MT, scored.old_MT - scored.sampler_MT, 0.0)
    gaps_MT = np.nan_to_num(gaps_MT.astype(np.float64))
    if settings.mode.startswith("sequence"):
        gaps_MT = np.broadcast_to(gaps_MT.sum(axis=1, keepdims=True), gaps_MT.shape)
    with np.errstate(over="ignore"):
        plain_MT = np.exp(gaps_MT)
    capped_MT: Array = ~np.isclose(scored.weights_MT, plain_MT, rtol=_CAP_TOLERANCE, atol=0)
    return capped_MT & scored.mask_MT


def _untrained_tokens(generated_BT: Array, updates: Sequence[_UpdateArrays]) -> dict[str, Reading]:
    """The share of generated tokens outside the loss, of the responses that are in the loss."""
    if not updates:
        return {}
    left_out: list[Array] = []
    for update in updates:
        trained_M1 = update.mask_MT.any(axis=1, keepdims=True)
        outside_MT: Array = np.logical_not(update.mask_MT)
        left_out.append(outside_MT[generated_BT[update.places] & trained_M1])
    tokens_N = np.concatenate(left_out)
    none: Reading = NotApplicable("no response is in the loss")
    return {"optimizer/untrained_token_rate": Rate.of(tokens_N) if tokens_N.size else none}


def _unknown(updates: Sequence[_UpdateArrays]) -> dict[str, Reading]:
    """Numbers of the updates that the taps did not see."""
    readings: dict[str, Reading] = {}
    if updates and any(each.update.grad_norm is None for each in updates):
        readings["optimizer/grad_norm"] = ABSENT
    if updates and any(each.update.learning_rate is None for each in updates):
        readings["optimizer/learning_rate"] = ABSENT
    return readings


def _times(captured: CapturedStep) -> dict[str, Reading]:
    seconds = sum(generation.seconds for generation in captured.generations)
    return {"time/rollout": Mean.of_number(seconds)}
