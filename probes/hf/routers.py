"""Reads and forces the routers of a mixture-of-experts model of transformers, through hooks.

A router is a sibling module of its layer's experts. Its output differs by family and version: ids
of the experts with weights and logits, or only logits, from which the K largest are chosen.

Shape suffixes: N tokens of a pass, D layers with a router, E experts, K experts per token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.replay import forced

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_SLOTS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k")
_ROUTER = re.compile(r"(Router|Gate|Gating)$")


class Routers:
    """All routers of a model, in the order of its layers; none in a dense one.

    Args:
        model: a causal language model of transformers.
    """

    def __init__(self, model: Any) -> None:
        config = model.config.get_text_config()
        self.experts = _first(config, _EXPERTS)
        self.slots = _first(config, _SLOTS)
        pairs = [] if self.experts < 2 else list(_routers(model))
        self.modules = [router for router, _ in pairs]
        self.expert_modules = [experts for _, experts in pairs]
        """The experts of each router."""

    def __bool__(self) -> bool:
        return bool(self.modules)

    @contextmanager
    def watched(self, wanted: bool, forced_NDK: Tensor | None = None) -> Iterator[Tape | None]:
        """Record the routers inside the block; yields None if not needed or without routers.

        Args:
            wanted: whether the experts are wanted.
            forced_NDK: experts to force on the tokens of the pass, which is then always recorded.
                If one of a token's K experts is -1, the router chooses. None forces nothing.
        """
        if not self.modules or not (wanted or forced_NDK is not None):
            yield None
            return
        tape = Tape(self, forced_NDK)
        hooks = [
            module.register_forward_hook(tape.hook(layer))
            for layer, module in enumerate(self.modules)
        ]
        if forced_NDK is not None:
            hooks += [
                experts.register_forward_pre_hook(tape.expert_hook(layer), with_kwargs=True)
                for layer, experts in enumerate(self.expert_modules)
            ]
        try:
            yield tape
        finally:
            for hook in hooks:
                hook.remove()


class Tape:
    """The routers' choices in the latest forward pass, token by token.

    Args:
        routers: the routers.
        forced_NDK: experts to force, as in `Routers.watched`.
    """

    def __init__(self, routers: Routers, forced_NDK: Tensor | None = None) -> None:
        self._routers, self._forced_NDK = routers, forced_NDK
        self._experts: list[Tensor | None] = [None] * len(routers.modules)
        self._margins: list[Tensor | None] = [None] * len(routers.modules)

    def hook(self, layer: int) -> Any:
        """A hook that records the output of a layer's router, and forces experts if given."""

        def note(router: nn.Module, _arguments: Any, output: Any) -> Any:
            # An edit of an operation counts the calls of a pass, and must not count these.
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - no public name
                ids_NK, logits_NE = self._read(output)
                self._experts[layer] = ids_NK
                self._margins[layer] = None if logits_NE is None else _margin(logits_NE, ids_NK)
                if self._forced_NDK is None:
                    return None
                return forced(router, output, self._forced_NDK[:, layer])

        return note

    def expert_hook(self, layer: int) -> Any:
        """A hook that records the experts that a layer actually uses."""

        def note(_experts: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            tensors = [
                value for value in (*arguments, *named.values()) if isinstance(value, Tensor)
            ]
            ids = [tensor for tensor in tensors if not tensor.is_floating_point()]
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - as above
                self._experts[layer] = ids[0].flatten(0, -2) if ids else None

        return note

    def _read(self, output: Any) -> tuple[Tensor, Tensor | None]:
        """Ids of the chosen experts (N, K), and the logits (N, E) if returned."""
        parts = [output] if isinstance(output, Tensor) else output
        flat = [part.flatten(0, -2) for part in parts if isinstance(part, Tensor) and part.ndim > 1]
        ids = [part for part in flat if not part.is_floating_point()]
        floats = [part for part in flat if part.is_floating_point()]
        logits = [part for part in floats if part.shape[-1] == self._routers.experts]
        if ids:
            return ids[0], logits[0] if logits else None
        # If probabilities and logits are returned, the logits come last.
        return logits[-1].topk(self._routers.slots, dim=-1).indices, logits[-1]

    def taken(self) -> list[Tensor | None]:
        """What the latest pass recorded: the experts of each layer, then the margins."""
        if self._forced_NDK is not None:
            raise InapplicableError("experts can be replayed in one pass only")
        return [*self._experts, *self._margins]

    def put(self, recorded: Sequence[Tensor | None]) -> None:
        """Replace it by what several passes recorded."""
        count = len(self._experts)
        self._experts, self._margins = list(recorded[:count]), list(recorded[count:])

    def readings(self, rows_N: Tensor) -> dict[str, Tensor]:
        """`experts` (N, D, K) and, if every layer returns its logits, `router_margin` (N, D).

        Args:
            rows_N: indices of tokens in the flattened batch of the pass.
        """
        recorded = [ids for ids in self._experts if ids is not None]
        if len(recorded) < len(self._experts):
            return {}
        experts = torch.stack([ids[rows_N] for ids in recorded], dim=1).to(torch.int16)
        margins = [margin[rows_N] for margin in self._margins if margin is not None]
        if len(margins) < len(recorded):
            return {"experts": experts}
        return {"experts": experts, "router_margin": torch.stack(margins, dim=1)}


def _margin(logits_NE: Tensor, ids_NK: Tensor) -> Tensor:
    """Lowest logit of the chosen experts minus the highest of the others, float32, shape (N,).

    NaN if the chosen experts are not those with the largest logits: some families add a bias, or
    choose groups of experts first.
    """
    logits_NE = logits_NE.float()
    chosen_NE = torch.zeros_like(logits_NE, dtype=torch.bool).scatter_(1, ids_NK.long(), True)
    least_N = logits_NE.masked_fill(~chosen_NE, torch.inf).amin(dim=-1)
    largest_N = logits_NE.masked_fill(chosen_NE, -torch.inf).amax(dim=-1)
    margin_N = least_N - largest_N
    return margin_N.masked_fill((margin_N < 0) | ~margin_N.isfinite(), torch.nan)


def _first(config: Any, names: tuple[str, ...]) -> int:
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), 0)


def _routers(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Each router with its sibling module of experts."""
    for module in model.modules():
        children = dict(module.named_children())
        if "experts" not in children:
            continue
        named = [children[name] for name in ("gate", "router") if name in children]
        typed = [child for child in children.values() if _ROUTER.search(type(child).__name__)]
        if typed or named:
            yield (typed or named)[0], children["experts"]
