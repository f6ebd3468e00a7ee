"""The routers of a mixture of experts in transformers, of whatever family, read and led by hooks.

A router stands beside its layer's experts. What it says differs by family and version: the ids of
the experts with their weights and the logits, or logits alone, of which the K largest are meant.

Shape suffixes: N tokens of a pass, D layers with a router, E experts, K experts of a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
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
        self.served = [experts for _, experts in pairs]
        """The experts that each of them serves."""

    def __bool__(self) -> bool:
        return bool(self.modules)

    @contextmanager
    def watched(self, wanted: bool, forced_NDK: Tensor | None = None) -> Iterator[Tape | None]:
        """What the routers do inside, or None where nobody wants it or there are none.

        Args:
            wanted: whether anybody wants it.
            forced_NDK: experts for the tokens of the pass, which is then always watched; where one
                of a token's K is -1, the router chooses by itself. None forces nothing.
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
                experts.register_forward_pre_hook(tape.served(layer), with_kwargs=True)
                for layer, experts in enumerate(self.served)
            ]
        try:
            yield tape
        finally:
            for hook in hooks:
                hook.remove()


class Tape:
    """What the routers did in the latest forward pass, token by token.

    Args:
        routers: whose.
        forced_NDK: experts that are put into their answers, as in `Routers.watched`.
    """

    def __init__(self, routers: Routers, forced_NDK: Tensor | None = None) -> None:
        self._routers, self._forced_NDK = routers, forced_NDK
        self._experts: list[Tensor | None] = [None] * len(routers.modules)
        self._margins: list[Tensor | None] = [None] * len(routers.modules)

    def hook(self, layer: int) -> Any:
        """Notes what one layer's router answers, and puts what is forced into it."""

        def note(router: nn.Module, _arguments: Any, output: Any) -> Any:
            ids_NK, logits_NE = self._read(output)
            self._experts[layer] = ids_NK
            self._margins[layer] = None if logits_NE is None else _margin(logits_NE, ids_NK)
            if self._forced_NDK is None:
                return None
            return forced(router, output, self._forced_NDK[:, layer])

        return note

    def served(self, layer: int) -> Any:
        """Notes which experts one layer was really asked for."""

        def note(_experts: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            given = [each for each in (*arguments, *named.values()) if isinstance(each, Tensor)]
            ids = [each for each in given if not each.is_floating_point()]
            self._experts[layer] = ids[0].flatten(0, -2) if ids else None

        return note

    def _read(self, output: Any) -> tuple[Tensor, Tensor | None]:
        """Ids of the chosen experts (N, K), and the logits (N, E) where they are told."""
        parts = [output] if isinstance(output, Tensor) else output
        told = [part.flatten(0, -2) for part in parts if isinstance(part, Tensor) and part.ndim > 1]
        ids = [part for part in told if not part.is_floating_point()]
        wide = [part for part in told if part.is_floating_point()]
        wide = [part for part in wide if part.shape[-1] == self._routers.experts]
        if ids:
            return ids[0], wide[0] if wide else None
        # Where both are told, logits come after what was made of them.
        return wide[-1].topk(self._routers.slots, dim=-1).indices, wide[-1]

    def readings(self, rows_N: Tensor) -> dict[str, Tensor]:
        """`experts` (N, L, K) and, where every layer tells its logits, `router_margin` (N, L).

        Args:
            rows_N: of the pass's tokens, those that are meant, numbered row after row.
        """
        there = [ids for ids in self._experts if ids is not None]
        if len(there) < len(self._experts):
            return {}
        experts = torch.stack([ids[rows_N] for ids in there], dim=1).to(torch.int16)
        margins = [each[rows_N] for each in self._margins if each is not None]
        if len(margins) < len(there):
            return {"experts": experts}
        return {"experts": experts, "router_margin": torch.stack(margins, dim=1)}


def _margin(logits_NE: Tensor, ids_NK: Tensor) -> Tensor:
    """Least logit of the chosen minus largest of the others, float32, shape (N,).

    NaN where the choice was not that of the largest logits: some families add a bias to it, or
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
    """Each router with the experts beside it."""
    for module in model.modules():
        children = dict(module.named_children())
        if "experts" not in children:
            continue
        named = [children[name] for name in ("gate", "router") if name in children]
        fitting = [each for each in children.values() if _ROUTER.search(type(each).__name__)]
        if fitting or named:
            yield (fitting or named)[0], children["experts"]
