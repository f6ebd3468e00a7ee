"""The adaptive entropy coefficient across training steps."""

from __future__ import annotations

from typing import Any

from grpodoctor.trainer.algorithms.entropy.adaptive import adaptive
from grpodoctor.trainer.algorithms.losses.settings import LossConfig


class EntropyController:
    """Keeps the adaptive coefficient between steps; unused if the coefficient is fixed.

    The coefficient starts at `loss.entropy_coefficient_min`.
    """

    def __init__(self) -> None:
        self._coefficient = 0.0

    def adapted(self, loss: LossConfig, entropy: float) -> LossConfig:
        """The loss settings with the entropy coefficient of this batch.

        `entropy` is the mean over the batch's generated tokens, in nats.
        """
        step = adaptive(self._coefficient, entropy, loss)
        self._coefficient = step.next_coefficient
        if loss.entropy_target is None:
            return loss
        return loss.model_copy(update={"entropy_coefficient": step.coefficient})

    def state(self) -> dict[str, Any]:
        """The state for an exact resume, as JSON."""
        return {"coefficient": self._coefficient}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._coefficient = float(state["coefficient"])
