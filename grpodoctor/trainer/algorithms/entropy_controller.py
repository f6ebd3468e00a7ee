"""The adaptive entropy coefficient from step to step."""

from __future__ import annotations

from typing import Any

from grpodoctor.trainer.algorithms.entropy.adaptive import adaptive
from grpodoctor.trainer.config.train_config import TrainConfig


class EntropyController:
    """Remembers the coefficient between two steps; with a fixed one there is nothing to remember.

    It begins at the least that the settings allow.
    """

    def __init__(self) -> None:
        self._coefficient = 0.0

    def in_force(self, config: TrainConfig, entropy: float) -> TrainConfig:
        """The configuration with the entropy coefficient of a batch.

        Args:
            config: as it was set.
            entropy: mean over the batch's generated tokens, in nats.
        """
        adapted = adaptive(self._coefficient, entropy, config.loss)
        self._coefficient = adapted.state
        if config.loss.entropy_target is None:
            return config
        loss = config.loss.model_copy(update={"entropy_coefficient": adapted.in_force})
        return config.model_copy(update={"loss": loss})

    def state(self) -> dict[str, Any]:
        """What an exact resume needs, as JSON."""
        return {"coefficient": self._coefficient}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._coefficient = float(state["coefficient"])
