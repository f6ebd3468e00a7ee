"""The reference that a KL penalty holds the policy to: the model as it was before training."""

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

    A policy with adapters is its own reference once they are off. Any other needs a second model,
    which is loaded when a KL penalty first asks for it rather than kept beside every run that may
    never want it: the price is one loading of the model at that step.

    Args:
        policy: what is trained.
        load: gives the policy as it was before training.
        ranks: who shares the scoring; the reference is whole on each.
    """

    def __init__(
        self, policy: Policy, load: Callable[[], Policy], ranks: Ranks = SINGLE_PROCESS
    ) -> None:
        self._policy, self._load, self._ranks = policy, load, ranks
        self.loaded: Policy | None = None
        """A model of its own; None for as long as none was needed."""

    def prepare(self) -> None:
        """Have it ready.

        Raises:
            InputError: if the model cannot be loaded a second time.
        """
        if self.loaded is None and not adapter_layers(self._policy.model):
            self.loaded = self._load()

    def logprobs(self, samples: Samples, temperature: float, micro_batch: int) -> Tensor:
        """Of the responses' tokens, shape (B, T), as `score` gives them; after `prepare`."""
        model = (self.loaded or self._policy).model
        own = nullcontext() if self.loaded else adapters_off(model)
        with own:
            return score_on_ranks(model, samples, temperature, micro_batch, self._ranks).logprobs_BT
