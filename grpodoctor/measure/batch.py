"""One rank's rollout batch and one optimizer step, as plain numpy arrays.

Whoever runs the training (the bundled trainer, a hook, a dialect that reads dumps) fills these two
records; everything in `grpodoctor.measure` reads them and changes nothing in them. Shape suffixes:
B responses, T token positions of the longest response. Padding may hold any garbage: a position
counts only where a mask says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import DataError

Floats = NDArray[np.floating]
Integers = NDArray[np.integer]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBatch:
    """The responses that one rank sampled for one step. What is None was not measured.

    A prompt's responses share a group id and live on one rank: groups are not put together again
    from several ranks.

    Raises:
        DataError: if the arrays do not fit each other.
    """

    step: int
    sequence_ids: list[str]
    """One id per response, unique within the run."""
    group_ids_B: Integers
    """Responses of one prompt share it."""
    prompt_ids: list[str]
    prompts: list[str]
    texts: list[str]
    references: list[str]
    """The expected answer per response; empty text where there is none."""
    tokens_BT: Integers
    mask_BT: Flags
    """Generated tokens, the end token among them."""
    rewards_B: Floats
    """The reward that the advantages are made of."""
    truncated_B: Flags
    """Cut by the length limit before any declared end token."""
    components: Mapping[str, Floats] = field(default_factory=dict)
    """Reward components by name, unweighted, shape (B,) each."""
    correct_B: Flags | None = None
    advantages_B: Floats | None = None
    """The final advantage of each response; the mean of its loss tokens where these differ."""
    advantages_BT: Floats | None = None
    """The final advantage of each token; None where those of a response are all alike."""
    learner_logprobs_BT: Floats | None = None
    """Under the learner when the batch began (π_old), at the sampling temperature."""
    sampler_logprobs_BT: Floats | None = None
    """As the engine that generated the tokens reports them."""
    old_logprobs_BT: Floats | None = None
    """What the loss takes for the old policy."""
    entropy_BT: Floats | None = None
    """Of the learner when the batch began, at the sampling temperature, in nats."""
    loss_mask_BT: Flags | None = None
    """Tokens that bear loss; None if all generated ones do."""
    staleness_B: Integers | None = None
    """Optimizer steps between sampling and use."""

    def __post_init__(self) -> None:
        _check_shapes(self, f"rollout batch of step {self.step}", self.tokens_BT.shape)
        for name, values in self.components.items():
            if np.shape(values) != self.tokens_BT.shape[:1]:
                raise DataError(
                    f"reward component {name[:40]!r} has shape {np.shape(values)}",
                    where=f"rollout batch of step {self.step}",
                    remedy="give one number per response",
                )

    @property
    def lengths_B(self) -> Integers:
        """Generated tokens per response."""
        lengths_B: Integers = self.mask_BT.sum(axis=1)
        return lengths_B

    @property
    def loss_tokens_BT(self) -> Flags:
        """Tokens that bear loss."""
        return self.mask_BT if self.loss_mask_BT is None else self.loss_mask_BT


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBatch:
    """What one optimizer step of one rank saw. What is None does not exist in this loss.

    Raises:
        DataError: if the arrays do not fit each other.
    """

    sequence_ids: list[str]
    new_logprobs_BT: Floats
    """Under the parameters that this step's gradient was taken at."""
    old_logprobs_BT: Floats
    advantages_BT: Floats
    loss_mask_BT: Flags
    loss: float
    grad_norm: float
    """Before clipping."""
    learning_rate: float
    clip_low: float | None = None
    """PPO's bounds; None where the loss has none, or tells by flags what it clipped."""
    clip_high: float | None = None
    dual_clip: float | None = None
    """Second clip of a negative advantage: the largest ratio that still has a gradient."""
    entropy_BT: Floats | None = None
    reference_logprobs_BT: Floats | None = None
    weights_BT: Floats | None = None
    """Correction weight of the sampler-learner mismatch, as applied."""
    capped_BT: Flags | None = None
    """Where that weight was capped or set to zero."""
    clipped_low_BT: Flags | None = None
    """Where the loss itself says that it stopped a token with A < 0; None: the rule of PPO.

    Shape (B, T), or (B, 1) where the loss clips whole responses: then responses are counted.
    """
    clipped_high_BT: Flags | None = None
    """The same for A > 0."""
    gate_BT: Floats | None = None
    """Which share of its gradient a soft gate leaves each token."""
    chosen_BT: Flags | None = None
    """Which tokens the loss singled out for their covariance."""
    stale_B: Flags | None = None
    """Which responses were left out as too far off-policy."""

    def __post_init__(self) -> None:
        _check_shapes(self, "update batch", self.new_logprobs_BT.shape)


def _check_shapes(batch: RolloutBatch | UpdateBatch, where: str, shape: tuple[int, ...]) -> None:
    """Check every list and array of a batch against the (B, T) that its name promises."""
    if len(shape) != 2:
        raise DataError(f"token array has shape {shape}", where=where, remedy="give it as (B, T)")
    for each in fields(batch):
        value = getattr(batch, each.name)
        if not isinstance(value, list | np.ndarray):
            continue
        found = value.shape if isinstance(value, np.ndarray) else (len(value),)
        allowed = _shapes_of(each.name, shape)
        if found not in allowed:
            raise DataError(
                f"{each.name} has shape {found} instead of {allowed[0]}",
                where=where,
                remedy="give every array of a batch for the same responses and positions",
            )


def _shapes_of(name: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    if name.startswith("clipped_"):
        return [shape, (shape[0], 1)]
    return [shape if name.endswith("_BT") else shape[:1]]
