"""Splits a causal language model of transformers into its trunk and its output head.

Some families cap, scale or divide the logits after the output layer. So the head is the model's own
forward pass with the trunk's output inserted, which keeps these steps. FSDP requires that the whole
model is called, never a part of it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from contract import RefusalError
from torch import Tensor

_PULSE_SECONDS = 10.0
_STATES = "cache_params"
"""The cache of families without attention."""


def _trunk_output(hidden: Tensor, further: Iterable[str]) -> Any:
    """A trunk's output with every optional field that a head of transformers reads.

    Args:
        hidden: the last hidden states.
        further: names of the fields that this family's trunk returns.
    """
    from transformers.modeling_outputs import (
        BaseModelOutputWithPastAndCrossAttentions,
        MoeModelOutputWithPast,
    )

    output = MoeModelOutputWithPast(last_hidden_state=hidden)
    for name in (*BaseModelOutputWithPastAndCrossAttentions.__dataclass_fields__, *further):
        if not hasattr(output, name):
            setattr(output, name, None)
    return output


def _trunk_of(model: Any) -> Any:
    """The part that the model's forward pass calls: its base model, or the decoder within it.

    The prefix of Llama 4's text model names no part of it, so the base model is the model itself.
    Its trunk is the part with a list of layers.
    """
    base = model.base_model
    called = inspect.unwrap(type(model).forward).__code__.co_names
    if base is model:
        parts = (part for name, part in model.named_children() if name in called)
        return next((part for part in parts if _has_layers(part)), model)
    decoder = getattr(base, "decoder", None)
    return decoder if decoder is not None and "decoder" in called else base


def _has_layers(part: torch.nn.Module) -> bool:
    return any(isinstance(child, torch.nn.ModuleList) for child in part.children())


class _Pulse:
    """Prints a line from time to time during forward passes, as a sign of life for the probe."""

    def __init__(self) -> None:
        self._passes, self._last = 0, time.monotonic()

    def beat(self) -> None:
        self._passes += 1
        if time.monotonic() - self._last >= _PULSE_SECONDS:
            self._last = time.monotonic()
            print(f"{self._passes} forward passes", flush=True)


class SplitModel:
    """A model whose trunk and head can be run separately.

    Args:
        model: a causal language model.
        device: the device of its inputs.
        compute: precision of autocast; None to disable it.
    """

    def __init__(self, model: Any, device: torch.device, compute: torch.dtype | None) -> None:
        self.model, self.device, self._compute = model, device, compute
        self._trunk = _trunk_of(model)
        if self._trunk is model:
            raise RefusalError(f"{type(model).__name__} has no trunk separate from its head")
        self._forward = self._trunk.forward
        self._trunk.forward = self._trunk_forward
        self._pulse = _Pulse()
        self.gradients = False
        """Whether passes over whole sequences keep what gradients need."""
        self._given: Tensor | None = None
        self._hidden: Tensor | None = None
        self._fields: tuple[str, ...] = ()
        """Fields of the trunk's latest output."""
        takes = inspect.signature(inspect.unwrap(type(model).forward)).parameters
        self._cache = _STATES if _STATES in takes else "past_key_values"
        """The name of the cache among the model's inputs and outputs."""

    def _trunk_forward(self, *arguments: Any, **inputs: Any) -> Any:
        """Replaces the trunk's forward pass."""
        if self._given is not None:
            return _trunk_output(self._given, self._fields)
        output = self._forward(*arguments, **inputs)
        self._pulse.beat()
        self._hidden = output.last_hidden_state
        self._fields = tuple(getattr(type(output), "__dataclass_fields__", ()))
        # Only the logits of the last position of this pass are ever used.
        output.last_hidden_state = self._hidden[:, -1:]
        return output

    def hidden(
        self, ids_BL: Tensor, positions_BL: Tensor | None = None, seen_BL: Tensor | None = None
    ) -> Tensor:
        """The trunk's output for sequences padded on the right, shape (B, L, H).

        No mask is needed: causal attention never sees the padding, which comes last.

        Args:
            ids_BL: the sequences.
            positions_BL: their positions, if these are not the usual ones.
            seen_BL: 0 for tokens that no other token sees, if there are any.
        """
        given = {} if seen_BL is None else {"attention_mask": seen_BL}
        if positions_BL is not None:  # without a mask, a jump would begin another sequence
            given["position_ids"] = positions_BL.to(self.device)
            given.setdefault("attention_mask", torch.ones_like(ids_BL))
        with torch.set_grad_enabled(self.gradients), self._autocast():
            self.model(input_ids=ids_BL, use_cache=False, **given)
        return self._taken()

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """The model's logits for outputs of the trunk, shape (N, V)."""
        placeholder = torch.zeros(1, len(hidden_NH), dtype=torch.long, device=self.device)
        self._given = hidden_NH[None]
        try:
            with torch.set_grad_enabled(self.gradients), self._autocast():
                logits: Tensor = self.model(input_ids=placeholder, use_cache=False).logits[0]
        finally:
            self._given = None
        return logits

    def next_logits(self, ids_BW: Tensor, seen_BW: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits of the next token of sequences padded on the left, shape (B, V), and the cache.

        Args:
            ids_BW: the positions that are not in the cache yet.
            seen_BW: 1 for all real tokens so far, 0 for padding.
            cache: the cache of the previous call; None in the first call.
        """
        output = self._continued(ids_BW, seen_BW, cache)
        self._taken()
        return output.logits[:, -1], getattr(output, self._cache)

    def next_hidden(self, ids_BW: Tensor, seen_BW: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Like `next_logits`, with the trunk's output for all W positions, shape (B, W, H)."""
        output = self._continued(ids_BW, seen_BW, cache)
        return self._taken(), getattr(output, self._cache)

    def whole_cache(self) -> Any:
        """An empty cache that keeps all positions; None if layers keep states instead of keys.

        A model's own cache drops the keys before a window, so that no edit can widen it.
        """
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

        kinds = {type(layer) for layer in DynamicCache(config=self.model.config).layers}
        return DynamicCache() if kinds <= {DynamicLayer, DynamicSlidingWindowLayer} else None

    def _continued(self, ids_BW: Tensor, seen_BW: Tensor, cache: Any) -> Any:
        positions_BW = (seen_BW.cumsum(dim=1) - 1).clamp_(min=0)[:, -ids_BW.shape[1] :]
        # A state has no places: Mamba would multiply one position by the mask of all.
        is_state = self._cache == _STATES and cache is not None
        with torch.no_grad(), self._autocast():
            return self.model(
                input_ids=ids_BW,
                attention_mask=None if is_state else seen_BW,
                position_ids=positions_BW,
                use_cache=True,
                **{self._cache: cache},
            )

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
        """Restore the trunk's forward pass."""
        self._trunk.forward = self._forward
