"""Inputs of a KL estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from grpodoctor.trainer.algorithms.log_ratios import bounded_log_ratio


@dataclass(frozen=True, slots=True)
class KlInputs:
    """The sampled tokens of some responses; zero outside the mask."""

    new_logprobs_BT: Tensor
    """Under the current parameters; the only tensor with a gradient."""
    reference_logprobs_BT: Tensor
    old_logprobs_BT: Tensor
    """Under the old policy."""

    def gap(self) -> Tensor:
        """log(reference / new), shape (B, T)."""
        return bounded_log_ratio(self.reference_logprobs_BT, self.new_logprobs_BT)


KlEstimator = Callable[[KlInputs], Tensor]
"""Returns the penalty per token, shape (B, T), with its gradient."""
