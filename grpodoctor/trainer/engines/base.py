"""The interface of rollout engines, and the weight syncs that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from grpodoctor.trainer.config.sections import EngineConfig
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.distributed.ranks import Ranks
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.samples import Samples


class RolloutEngine(ABC):
    """An engine that samples for the training loop with the weights of the last sync."""

    synced_step = 0
    """The training step before whose rollout the weights were last synced."""

    def __init__(self, config: TrainConfig, policy: Policy, ranks: Ranks) -> None:
        self._policy, self._ranks = policy, ranks
        self._engine, self._temperature = config.engine, config.rollout.temperature
        self._rollout = config.rollout
        self._due = False
        """Whether a changed setting requires a sync before the next rollout."""

    @property
    def temperature(self) -> float:
        """The engine's own temperature if it has one, else the rollout temperature."""
        return self._engine.temperature or self._temperature

    @abstractmethod
    def sync(self, step: int) -> None:
        """Load the learner's weights; `step` is the training step about to sample."""

    def maybe_sync(self, step: int) -> bool:
        """Sync before the rollout of `step` if a sync is due; returns whether it synced."""
        if self._due or step - self.synced_step >= self._engine.sync_every:
            self.sync(step)
        return self.synced_step == step

    @abstractmethod
    def set(self, engine: EngineConfig, temperature: float) -> None:
        """Change the engine's settings and the rollout temperature during the run."""

    @abstractmethod
    def generate(
        self, prompts: Sequence[Sequence[int]], generator: torch.Generator, top_tokens: int = 0
    ) -> Samples:
        """Sample one response per prompt, with the `top_tokens` most likely tokens per position."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state for an exact resume: `synced_step`, `due`, and `weights` or None."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`, for an engine of the same configuration."""

    @abstractmethod
    def close(self) -> None:
        """Release resources outside this process's memory, such as connections and files."""
