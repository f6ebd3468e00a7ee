"""The built-in rollout engine, and the choice of an engine.

`BuiltinEngine` samples with the learner itself or with a copy. At int8 and int4 it rounds the
weights of all linear layers of the copy except the output head and the routers, like weight-only
quantization in practice; activations stay in the learner's dtype. At bf16 it computes in bfloat16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.engines.base import RolloutEngine
from grpodoctor.trainer.engines.quantization import fake_quantize
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.moe.routers import routers_of
from grpodoctor.trainer.samples import Samples, sample_on_ranks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BITS = {"int8": 8, "int4": 4}


def build_engine(
    config: TrainConfig, policy: Policy, ranks: Ranks = SINGLE_PROCESS
) -> RolloutEngine:
    """The engine that `config.engine` names.

    Raises:
        EngineError: if it does not start, does not respond, or serves a different model.
        MissingExtraError: if its packages are not installed.
    """
    if config.engine.kind == "builtin":
        return BuiltinEngine(config, policy, ranks)
    from grpodoctor.trainer.engines.vllm_engine import open_vllm

    return open_vllm(config, policy, ranks)


class BuiltinEngine(RolloutEngine):
    """Samples with the learner's weights as of the last sync, at the configured precision."""

    def __init__(self, config: TrainConfig, policy: Policy, ranks: Ranks = SINGLE_PROCESS) -> None:
        super().__init__(config, policy, ranks)
        self._replays_own_experts = config.engine.routing_replay == "R3"
        self._record = config.record
        self.sync(0)

    @property
    def model(self) -> PreTrainedModel:
        """The module that samples: the learner's, or a copy if precision or sync needs one."""
        return self._model

    def sync(self, step: int) -> None:
        """Load the learner's weights; `step` is the training step about to sample."""
        learner = self._policy.model
        if self._engine.precision == "learner" and self._engine.sync_every == 1:
            self._model = learner
        else:
            self._model = merged_copy(learner)
            _reduce_precision(self._model, self._engine.precision)
        self._due = False
        self.synced_step = self._step = step

    def maybe_sync(self, step: int) -> bool:
        """Sync before the rollout of `step` if a sync is due; returns whether it synced."""
        self._step = step
        return super().maybe_sync(step)

    def set(self, engine: EngineConfig, temperature: float) -> None:
        """Change the engine's settings and the rollout temperature during the run.

        Temperatures apply at once. A change of precision or `sync_every` forces a sync before the
        next rollout.
        """
        old = self._engine
        if (old.precision, old.sync_every) != (engine.precision, engine.sync_every):
            self._due = True
        self._engine, self._temperature = engine, temperature

    def generate(
        self, prompts: Sequence[Sequence[int]], generator: torch.Generator, top_tokens: int = 0
    ) -> Samples:
        """Sample one response per prompt, with the `top_tokens` most likely tokens per position."""
        wants_experts = self._replays_own_experts or self._record.measures_experts(self._step)
        routers = routers_of(self._model) if wants_experts else None

        def draw(rows: range) -> Samples:
            return sample(
                self._model,
                prompts[rows.start : rows.stop],
                max_length=self._rollout.max_length,
                temperature=self.temperature,
                top_p=self._rollout.top_p,
                top_k=self._rollout.top_k,
                tokenizer=self._policy.tokenizer,
                generator=generator,
                first=rows.start,
                total=len(prompts),
                top_tokens=top_tokens,
                routers=routers,
            )

        return sample_on_ranks(len(prompts), draw, self._model.device, self._ranks)

    def state_dict(self) -> dict[str, Any]:
        """The state for an exact resume: the step of the last sync, and copied weights."""
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
        """Do nothing: the engine holds no external resources."""


def _reduce_precision(model: PreTrainedModel, precision: str) -> None:
    """Convert a copy of the learner to the engine's precision, in place."""
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
        for stacked in (weight for weight in model.parameters() if weight.ndim == 3):
            for weight in stacked:  # one matrix per expert of a layer
                weight.copy_(fake_quantize(weight, _BITS[precision]))
