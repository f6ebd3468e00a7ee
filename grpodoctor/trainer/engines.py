"""The engine that samples: the learner itself, or a copy that differs from it as real engines do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grpodoctor.trainer.config import EngineConfig, TrainConfig
from grpodoctor.trainer.policy import Policy
from grpodoctor.trainer.sampler import Samples, sample


class RolloutEngine:
    """Samples with the learner's weights as of the last sync, at the configured precision."""

    def __init__(self, config: TrainConfig, policy: Policy) -> None:
        self._policy = policy
        self._engine = config.engine
        self._temperature = config.rollout.temperature
        self._max_length = config.rollout.max_length
        self.synced_step = 0

    @property
    def temperature(self) -> float:
        """What the engine divides logits by: its own temperature if it has one."""
        return self._engine.temperature or self._temperature

    def sync(self, step: int) -> None:
        """Take over the learner's weights; `step` is the training step about to sample."""
        self.synced_step = step

    def maybe_sync(self, step: int) -> bool:
        """Sync if `engine.sync_every` says so; returns whether it did."""
        self.sync(step)
        return True

    def set(self, engine: EngineConfig, temperature: float) -> None:
        """Change the engine and the rollout temperature in flight; the next sync obeys."""
        self._engine, self._temperature = engine, temperature

    def generate(self, prompts: Sequence[Sequence[int]], generator: torch.Generator) -> Samples:
        """One response per prompt."""
        return sample(
            self._policy.model,
            prompts,
            max_length=self._max_length,
            temperature=self.temperature,
            codec=self._policy.codec,
            generator=generator,
        )

    def state_dict(self) -> dict[str, Any]:
        """What an exact resume needs: the weights of a stale copy and their step."""
        return {"synced_step": self.synced_step, "weights": None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.synced_step = state["synced_step"]
