"""One rank's rollout batch and one optimizer step, as plain numpy arrays.

The bundled trainer, a hook or a reader of dumps fills these two records. The functions of
`grpodoctor.measure` read them and do not change them. Shape suffixes: B responses, T token
positions of the longest response. Padding may hold any values: a position counts only where a mask
is set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypeAlias

from grpodoctor.errors import DataError
from grpodoctor.support.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.floating]"
Integers: TypeAlias = "NDArray[np.integer]"
Flags: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBatch:
    """The responses that one rank sampled for one step. None means not measured.

    The responses to a prompt share a group id and must be on one rank: groups are not assembled
    from several ranks.

    Raises:
        DataError: if the shapes of the arrays are inconsistent.
    """

    step: int
    sequence_ids: list[str]
    """One id per response, unique within the run."""
    group_ids_B: Integers
    """The same id for all responses to a prompt."""
    prompt_ids: list[str]
    prompts: list[str]
    references: list[str]
    """The reference answer of each response; empty text if there is none."""
    tokens_BT: Integers
    mask_BT: Flags
    """Generated tokens, including the end token."""
    rewards_B: Floats
    """The reward from which the advantages are computed."""
    texts: list[str] | None = None
    truncated_B: Flags | None = None
    """Whether the length limit cut the response before any declared end token."""
    components: Mapping[str, Floats] = field(default_factory=dict)
    """Reward components by name, unweighted, shape (B,) each."""
    correct_B: Flags | None = None
    advantages_B: Floats | None = None
    """The final advantage of each response; the mean over its loss tokens if these differ."""
    advantages_BT: Floats | None = None
    """The final advantage of each token; None if all tokens of a response have the same."""
    learner_logprobs_BT: Floats | None = None
    """Under the learner at the start of the batch (π_old), at the sampling temperature."""
    sampler_logprobs_BT: Floats | None = None
    """As reported by the engine that generated the tokens."""
    old_logprobs_BT: Floats | None = None
    """The old policy's log-probabilities that the loss uses."""
    entropy_BT: Floats | None = None
    """Entropy of the learner at the start of the batch, at the sampling temperature, in nats."""
    loss_mask_BT: Flags | None = None
    """Tokens in the loss; None if all generated tokens are."""
    staleness_B: Integers | None = None
    """Optimizer steps between sampling and use."""
    prompt_tokens: list[Integers] | None = None
    """The token ids of each prompt as the model read it."""
    prompts_are_whole: bool = True
    """Whether equal prompts pose the same task. They do not if an image, or an environment with a
    state of its own, belongs to the prompt."""

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
        """Tokens in the loss."""
        return self.mask_BT if self.loss_mask_BT is None else self.loss_mask_BT


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateBatch:
    """The data of one optimizer step on one rank. None means that the loss does not have it.

    Raises:
        DataError: if the shapes of the arrays are inconsistent.
    """

    sequence_ids: list[str]
    new_logprobs_BT: Floats
    """Under the parameters at which this step's gradient was computed."""
    old_logprobs_BT: Floats
    advantages_BT: Floats
    loss_mask_BT: Flags
    loss: float
    grad_norm: float
    """Norm of the gradient before clipping."""
    learning_rate: float
    clip_low: float | None = None
    """PPO's bounds; None if the loss has none, or reports the clipped tokens in flags."""
    clip_high: float | None = None
    dual_clip: float | None = None
    """Dual clip of negative advantages: the largest ratio that still has a gradient."""
    entropy_BT: Floats | None = None
    reference_logprobs_BT: Floats | None = None
    weights_BT: Floats | None = None
    """Applied correction weight for the mismatch between sampler and learner."""
    capped_BT: Flags | None = None
    """Tokens whose correction weight was capped or set to zero."""
    clipped_low_BT: Flags | None = None
    """Tokens with A < 0 that the loss reports as clipped; None applies PPO's rule.

    Shape (B, T), or (B, 1) if the loss clips whole responses; then responses are counted.
    """
    clipped_high_BT: Flags | None = None
    """The same for tokens with A > 0."""
    gate_BT: Floats | None = None
    """Share of each token's gradient that a soft gate keeps."""
    chosen_BT: Flags | None = None
    """Tokens that the loss selected by their covariance."""
    stale_B: Flags | None = None
    """Responses that were dropped as too far off-policy."""

    def __post_init__(self) -> None:
        _check_shapes(self, "update batch", self.new_logprobs_BT.shape)


def _check_shapes(batch: RolloutBatch | UpdateBatch, where: str, shape: tuple[int, ...]) -> None:
    """Check every list and array of a batch against the shape that its name stands for."""
    if len(shape) != 2:
        raise DataError(f"token array has shape {shape}", where=where, remedy="give it as (B, T)")
    for entry in fields(batch):
        value = getattr(batch, entry.name)
        if not isinstance(value, list | np.ndarray):
            continue
        actual = value.shape if isinstance(value, np.ndarray) else (len(value),)
        allowed = _allowed_shapes(entry.name, shape)
        if actual not in allowed:
            raise DataError(
                f"{entry.name} has shape {actual} instead of {allowed[0]}",
                where=where,
                remedy="use the same responses and positions for all arrays of a batch",
            )


def _allowed_shapes(name: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    if name.startswith("clipped_"):
        return [shape, (shape[0], 1)]
    return [shape if name.endswith("_BT") else shape[:1]]
