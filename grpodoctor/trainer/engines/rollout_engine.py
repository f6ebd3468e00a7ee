"""The engine that samples: the learner itself, a copy that differs as real engines do, or vLLM.

What every engine does is `RolloutEngine`. `BuiltinEngine` is the built-in one.
int8 and int4 round the
weights of all its linear layers but the output head and routers, as weight-only quantisation does
in practice; activations stay in the learner's dtype. bf16 computes in bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.engines.quantization import fake_quantize
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.moe.routers import routers_of
from grpodoctor.trainer.samples import Samples, sample_on_ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BITS = {"int8": 8, "int4": 4}


class RolloutEngine(Protocol):
    """What the training loop asks of whatever samples."""

    synced_step: int
    """The training step before whose rollout the weights were taken over last."""

    @property
    def temperature(self) -> float:
        """What the engine divides logits by."""

    def sync(self, step: int) -> None:
        """Take over the learner's weights; `step` is the training step about to sample."""

    def maybe_sync(self, step: int) -> bool:
        """Sync before the rollout of `step` if it is time; returns whether it was."""

    def set(self, engine: EngineConfig, temperature: float) -> None:
        """Change the engine and the rollout temperature in flight."""

    def generate(
        self, prompts: Sequence[Sequence[int]], generator: torch.Generator, top_tokens: int = 0
    ) -> Samples:
        """One response per prompt, with so many of the likeliest tokens at each position."""

    def state_dict(self) -> dict[str, Any]:
        """What an exact resume needs: `synced_step`, `due`, and `weights` or None."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an engine of the same configuration."""

    def close(self) -> None:
        """Let go of what is no memory of this process."""


def build_engine(
    config: TrainConfig, policy: Policy, ranks: Ranks = SINGLE_PROCESS
) -> RolloutEngine:
    """The engine that `config.engine` names.

    Raises:
        EngineError: if it does not start, does not answer, or serves another model.
        MissingExtraError: if its packages are not installed.
    """
    if config.engine.kind == "builtin":
        return BuiltinEngine(config, policy, ranks)
    from grpodoctor.trainer.engines.vllm_engine import open_vllm

    return open_vllm(config, policy, ranks)


class BuiltinEngine:
    """Samples with the learner's weights as of the last sync, at the configured precision.

    Args:
        config: the run's configuration.
        policy: the learner; it is read, never changed.
        ranks: who shares the sampling; each has the whole model.
    """

    def __init__(self, config: TrainConfig, policy: Policy, ranks: Ranks = SINGLE_PROCESS) -> None:
        self._ranks = ranks
        self._policy = policy
        self._engine = config.engine
        self._temperature = config.rollout.temperature
        self._max_length = config.rollout.max_length
        self._replays_own_experts = config.engine.routing_replay == "R3"
        self._record = config.record
        self._due = False
        self.sync(0)

    @property
    def temperature(self) -> float:
        """What the engine divides logits by: its own temperature if it has one."""
        return self._engine.temperature or self._temperature

    @property
    def model(self) -> PreTrainedModel:
        """The module that samples; the learner's own unless precision or sync needs a copy."""
        return self._model

    def sync(self, step: int) -> None:
        """Take over the learner's weights; `step` is the training step about to sample."""
        learner = self._policy.model
        if self._engine.precision == "learner" and self._engine.sync_every == 1:
            self._model = learner
        else:
            self._model = merged_copy(learner)
            _degrade(self._model, self._engine.precision)
        self._due = False
        self.synced_step = self._step = step

    def maybe_sync(self, step: int) -> bool:
        """Sync before the rollout of `step` if it is time; returns whether it was."""
        self._step = step
        time_is_up = step - self.synced_step >= self._engine.sync_every
        if self._due or time_is_up:
            self.sync(step)
        return self.synced_step == step

    def set(self, engine: EngineConfig, temperature: float) -> None:
        """Change the engine and the rollout temperature in flight.

        Temperatures hold at once; another precision or pace of syncing makes the next sync due.
        """
        old = self._engine
        if (old.precision, old.sync_every) != (engine.precision, engine.sync_every):
            self._due = True
        self._engine, self._temperature = engine, temperature

    def generate(
        self, prompts: Sequence[Sequence[int]], generator: torch.Generator, top_tokens: int = 0
    ) -> Samples:
        """One response per prompt, with so many of the likeliest tokens at each position."""
        wants_experts = self._replays_own_experts or self._record.measures_experts(self._step)
        routers = routers_of(self._model) if wants_experts else None

        def draw(rows: range) -> Samples:
            return sample(
                self._model,
                prompts[rows.start : rows.stop],
                max_length=self._max_length,
                temperature=self.temperature,
                tokenizer=self._policy.tokenizer,
                generator=generator,
                first=rows.start,
                total=len(prompts),
                top_tokens=top_tokens,
                routers=routers,
            )

        return sample_on_ranks(len(prompts), draw, self._model.device, self._ranks)

    def state_dict(self) -> dict[str, Any]:
        """What an exact resume needs: the step of the last sync, and the weights if copied."""
        copied = self._model is not self._policy.model
        weights = self._model.state_dict() if copied else None
        return {"synced_step": self.synced_step, "due": self._due, "weights": weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an engine of the same configuration."""
        self.sync(state["synced_step"])
        self._due = state["due"]
        weights: dict[str, Tensor] | None = state["weights"]
        if weights is not None:
            self._model.load_state_dict(weights)

    def close(self) -> None:
        """Nothing to let go of."""


def _degrade(model: PreTrainedModel, precision: str) -> None:
    """Give a copy of the learner the engine's precision, in place."""
    if precision == "bf16":
        for parameter in model.parameters():  # buffers stay: engines keep rotary tables in float32
            parameter.data = parameter.data.to(torch.bfloat16)
        return
    if precision not in _BITS:
        return
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of transformers
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear) and module is not head:
                module.weight.copy_(fake_quantize(module.weight, _BITS[precision]))
        for stacked in (each for each in model.parameters() if each.ndim == 3):
            for weight in stacked:  # the experts of a layer, each a linear layer of its own
                weight.copy_(fake_quantize(weight, _BITS[precision]))
