"""What the taps saw, as references to the trainer's tensors; nothing is copied to the CPU here.

Copies are made once, when a step is complete: a copy per micro-batch would make a GPU wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from grpodoctor.hooks.trl.private_names import BATCH_KEYS


class LossSettings(NamedTuple):
    """The settings of the loss at an update."""

    loss_type: str
    level: str
    """`token` or `sequence`: what an importance ratio is of."""
    low: float
    high: float
    dual: float | None
    """Largest ratio of a negative advantage."""
    mode: str
    """Mode of the correction for the sampler."""


@dataclass
class Rewards:
    """The rewards of a generation."""

    names: list[str]
    per_function: Any
    """Rewards of all ranks, (N, functions)."""
    weights: Any
    prompts: list[str]
    """Prompts of this rank; all fields below are of this rank too."""
    texts: list[str]
    token_ids: list[list[int]]


@dataclass
class Generation:
    """A generated batch of this rank, in group order."""

    tensors: Mapping[str, Any]
    """The entries of `BATCH_KEYS` that the batch has."""
    group_size: int
    first_row: int
    """Number of the first response among those of all ranks."""
    end_ids: frozenset[int]
    masks_truncated: bool
    """Whether truncated responses were taken out of the masks."""
    leaves_out_unscored: bool
    """Whether a response that no function scored has no advantage, instead of the reward 0."""
    rewards: Rewards
    seconds: float
    prompts_are_whole: bool = True
    """Whether no image and no environment with a state of its own belongs to a prompt."""


@dataclass
class MicroBatch:
    """A micro-batch and the learner's scores of its response tokens."""

    generation: int
    """Index of the generation that it is from."""
    tensors: Mapping[str, Any]
    logprobs: Any
    entropies: Any
    loss: Any


@dataclass
class Update:
    """An optimizer step."""

    micro_batches: Sequence[MicroBatch]
    settings: LossSettings
    learning_rate: float | None
    grad_norm: Any = None


@dataclass
class CapturedStep:
    """Generations and the optimizer steps on them, until both end together."""

    generations: list[Generation] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)


def kept_tensors(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a batch that are recorded."""
    return {key: batch[key] for key in BATCH_KEYS if batch.get(key) is not None}
