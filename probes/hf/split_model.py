"""A causal language model of transformers in two halves: its trunk, and what makes logits of it.

Families do more than one multiplication after the trunk: they cap, scale and divide. So the second
half is the model's own forward pass with the trunk's answer put in, and all of that is as the
family has it. The whole model is always called, never a part of it, as FSDP demands.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from contract import RefusalError
from torch import Tensor

_PULSE_SECONDS = 10.0


class _Pulse:
    """A line of output now and then while passes are made, by which a watcher sees life."""

    def __init__(self) -> None:
        self._passes, self._told = 0, time.monotonic()

    def beat(self) -> None:
        self._passes += 1
        if time.monotonic() - self._told >= _PULSE_SECONDS:
            self._told = time.monotonic()
            print(f"{self._passes} forward passes", flush=True)


class Halves:
    """The two halves of a model.

    Args:
        model: for causal language modelling.
        device: where its inputs belong.
        compute: precision of autocast; None without it.
    """

    def __init__(self, model: Any, device: torch.device, compute: torch.dtype | None) -> None:
        self.model, self.device, self._compute = model, device, compute
        self._trunk = model.base_model
        if self._trunk is model:
            raise RefusalError(f"{type(model).__name__} has no trunk apart from its head")
        self._forward = self._trunk.forward
        self._trunk.forward = self._answer
        self._pulse = _Pulse()
        self._given: Tensor | None = None
        self._hidden: Tensor | None = None

    def _answer(self, *arguments: Any, **inputs: Any) -> Any:
        """In place of the trunk's forward pass."""
        from transformers.modeling_outputs import MoeModelOutputWithPast

        if self._given is not None:
            return MoeModelOutputWithPast(last_hidden_state=self._given)
        output = self._forward(*arguments, **inputs)
        self._pulse.beat()
        self._hidden = output.last_hidden_state
        # Of the logits that this pass makes, only those of the last column can be of use.
        output.last_hidden_state = self._hidden[:, -1:]
        return output

    def hidden(self, ids_BL: Tensor) -> Tensor:
        """What the trunk makes of sequences padded on the right, shape (B, L, H).

        There is no mask: padding comes after all that is real, and what comes after is not seen.
        """
        with torch.no_grad(), self._autocast():
            self.model(input_ids=ids_BL, use_cache=False)
        return self._taken()

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """The model's logits for some of the trunk's answers, shape (N, V)."""
        placeholder = torch.zeros(1, len(hidden_NH), dtype=torch.long, device=self.device)
        self._given = hidden_NH[None]
        try:
            with torch.no_grad(), self._autocast():
                logits: Tensor = self.model(input_ids=placeholder, use_cache=False).logits[0]
        finally:
            self._given = None
        return logits

    def next_logits(self, ids_BW: Tensor, seen_BW: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits of what follows sequences padded on the left, shape (B, V), and the cache.

        Args:
            ids_BW: the columns that are not in the cache yet.
            seen_BW: 1 for all tokens so far that are real, 0 for padding.
            cache: of the call before; None in the first.
        """
        positions_BW = (seen_BW.cumsum(dim=1) - 1).clamp_(min=0)[:, -ids_BW.shape[1] :]
        with torch.no_grad(), self._autocast():
            output = self.model(
                input_ids=ids_BW,
                attention_mask=seen_BW,
                position_ids=positions_BW,
                past_key_values=cache,
                use_cache=True,
            )
        self._taken()
        return output.logits[:, -1], output.past_key_values

    def _taken(self) -> Tensor:
        hidden, self._hidden = self._hidden, None
        if hidden is None:
            raise RefusalError(f"{type(self.model).__name__} does not call its trunk")
        return hidden

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._compute is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self._compute)

    def close(self) -> None:
        """Give the trunk its own forward pass back."""
        self._trunk.forward = self._forward
