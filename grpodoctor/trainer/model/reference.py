"""The reference of a KL penalty: the model as it was before training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from torch import Tensor

from grpodoctor.trainer.distributed.ranks import SINGLE_PROCESS, Ranks
from grpodoctor.trainer.model.lora import adapter_layers, adapters_off
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.scoring import score_on_ranks
from grpodoctor.trainer.samples import Samples


class Reference:
    """Scores responses under the reference.

    A policy with adapters is its own reference with the adapters switched off. Any other policy
    needs a second model. It is loaded when a KL penalty first needs it, so that runs without a
    penalty do not pay for it.
    """

    def __init__(
        self, policy: Policy, load: Callable[[], Policy], ranks: Ranks = SINGLE_PROCESS
    ) -> None:
        self._policy, self._load, self._ranks = policy, load, ranks
        self.loaded: Policy | None = None
        """The second model; None if it has not been loaded."""

    def prepare(self) -> None:
        """Load the second model if one is needed.

        Raises:
            InputError: if the model cannot be loaded a second time.
        """
        if self.loaded is None and not adapter_layers(self._policy.model):
            self.loaded = self._load()

    def logprobs(self, samples: Samples, temperature: float, micro_batch: int) -> Tensor:
        """Log-probabilities of the responses' tokens, shape (B, T); call `prepare` first."""
        model = (self.loaded or self._policy).model
        with nullcontext() if self.loaded else adapters_off(model):
            return score_on_ranks(model, samples, temperature, micro_batch, self._ranks).logprobs_BT
