"""The routers of a mixture of experts: record the experts they choose, and replay recorded experts.

A router gives each token logits over the experts. The K experts with the largest logits are
activated, weighted by their gate probabilities. Two passes over the same tokens can activate
different experts: in an engine of another precision, or after an optimizer step. Routing replay
forces given experts in place of the router's choice (`algorithms/replays` decides which). Their
gate weights are recomputed from the current logits, so that the router keeps a gradient.

Recording and replay work through hooks that exist only during a recorded pass; a dense model has
none. Shape suffixes besides the usual ones: D layers with a router, E experts, K experts per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from grpodoctor.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ABSENT = -1
"""Marks an expert that was not recorded; the router is free there."""

_FAMILIES = {
    "mixtral": "MixtralTopKRouter",
    "qwen2_moe": "Qwen2MoeTopKRouter",
    "qwen3_moe": "Qwen3MoeTopKRouter",
}
"""Router class by model type: families whose router returns logits, weights and expert ids."""

_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Names of the number of experts in model configurations."""

_Output = tuple[Tensor, Tensor, Tensor]


def is_mixture(model: PreTrainedModel) -> bool:
    """Whether the model is a mixture of experts, of any family."""
    config = model.config.get_text_config()
    return any((getattr(config, name, None) or 0) > 1 for name in _EXPERT_COUNTS)


def routers_of(model: PreTrainedModel) -> Routers | None:
    """The model's routers; None for a dense model and for an unsupported family."""
    family = model.config.get_text_config().model_type
    if not is_mixture(model) or family not in _FAMILIES:
        return None
    return Routers(model, family)


def require_routers(model: PreTrainedModel, setting: str) -> Routers:
    """The model's routers, for a setting that cannot work without them.

    Raises:
        ModelError: if the model is dense or of an unsupported family.
    """
    routers = routers_of(model)
    if routers is not None:
        return routers
    family = model.config.get_text_config().model_type
    if is_mixture(model):
        raise ModelError(
            f"{setting} does not support the routers of a {family} model",
            where="model.name",
            remedy=f"use a {', '.join(_FAMILIES)} model",
        )
    raise ModelError(
        f"{setting} needs a mixture of experts, and this {family} model is dense",
        where="model.name",
        remedy="use a mixture-of-experts model, or the built-in one with model.experts=8",
    )


class RoutingRecord:
    """What the routers did in the latest forward pass.

    Args:
        depth: number of routers.
        replay_DNK: experts to force on each token, `ABSENT` where the router is free; None leaves
            all routers free.
    """

    def __init__(self, depth: int, replay_DNK: Tensor | None) -> None:
        self.replay_DNK = replay_DNK
        self._logits: list[Tensor | None] = [None] * depth
        self._experts: list[Tensor | None] = [None] * depth

    def store_logits(self, layer: int, logits_NE: Tensor) -> None:
        """Store a router's logits, replacing those of an earlier pass."""
        self._logits[layer] = logits_NE.detach()

    def store_experts(self, layer: int, ids_NK: Tensor) -> None:
        """Store the experts that a layer activated."""
        self._experts[layer] = ids_NK.detach()

    def logits(self, rows: int) -> Tensor:
        """The routers' logits, float32, shape (rows, columns, D, E)."""
        return _by_row(self._logits, rows).float()

    def experts(self, rows: int) -> Tensor:
        """The activated experts, forced or chosen, int16, shape (rows, columns, D, K)."""
        return _by_row(self._experts, rows).to(torch.int16)


def _by_row(layers: list[Tensor | None], rows: int) -> Tensor:
    recorded = [layer for layer in layers if layer is not None]
    if len(recorded) != len(layers):
        raise RuntimeError("a router did not run in this pass")
    stacked = torch.stack(recorded, dim=1)
    return stacked.view(rows, -1, *stacked.shape[1:])


class Routers:
    """All routers of a model, in layer order."""

    def __init__(self, model: PreTrainedModel, family: str) -> None:
        source = import_module(f"transformers.models.{family}.modeling_{family}")
        kind: type[nn.Module] = getattr(source, _FAMILIES[family])
        modules = dict(model.named_modules())
        names = [name for name, module in modules.items() if isinstance(module, kind)]
        self._routers = [modules[name] for name in names]
        self._experts = [modules[f"{name.rpartition('.')[0]}.experts"] for name in names]
        config = model.config.get_text_config()
        self.experts: int = getattr(config, "num_local_experts", None) or config.num_experts
        """E, experts per layer."""
        self.slots: int = config.num_experts_per_tok
        """K, experts that a token activates."""

    @property
    def depth(self) -> int:
        """D, layers with a router."""
        return len(self._routers)

    @contextmanager
    def recording(self, replay_BLDK: Tensor | None = None) -> Iterator[RoutingRecord]:
        """Record the routers during the body, and force experts on them if some are given.

        The body must include the backward pass: gradient checkpointing runs the layers again.
        """
        replay_DNK = None
        if replay_BLDK is not None:
            replay_DNK = replay_BLDK.flatten(0, 1).movedim(1, 0).long()
        record = RoutingRecord(self.depth, replay_DNK)
        with ExitStack() as hooks:
            for layer, (router, experts) in enumerate(
                zip(self._routers, self._experts, strict=True)
            ):
                hooks.callback(router.register_forward_hook(_RouterHook(record, layer)).remove)
                hooks.callback(experts.register_forward_pre_hook(_ExpertHook(record, layer)).remove)
            yield record


@dataclass(frozen=True, slots=True)
class _RouterHook:
    """Records one router's logits and puts the replayed experts into its output."""

    record: RoutingRecord
    layer: int

    def __call__(
        self, router: nn.Module, _arguments: tuple[Tensor, ...], output: _Output
    ) -> _Output | None:
        logits_NE, weights_NK, chosen_NK = output
        self.record.store_logits(self.layer, logits_NE)
        if self.record.replay_DNK is None:
            return None
        given_NK = self.record.replay_DNK[self.layer]
        ids_NK = torch.where((given_NK >= 0).all(dim=1, keepdim=True), given_NK, chosen_NK)
        # Mixtral has no such setting and always normalizes.
        normalized = bool(getattr(router, "norm_topk_prob", True))
        return logits_NE, gate_weights(logits_NE, ids_NK, normalized).to(weights_NK.dtype), ids_NK


@dataclass(frozen=True, slots=True)
class _ExpertHook:
    """Records the experts that one layer activates."""

    record: RoutingRecord
    layer: int

    def __call__(self, _experts: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        _, ids_NK, _ = arguments
        self.record.store_experts(self.layer, ids_NK)


def gate_weights(logits_NE: Tensor, ids_NK: Tensor, normalized: bool) -> Tensor:
    """The gate weights of given experts under the current logits, shape (N, K); differentiable.

    With `normalized`, the weights of a token's experts sum to one.
    """
    weights_NK = torch.softmax(logits_NE, dim=-1, dtype=torch.float32).gather(1, ids_NK)
    if normalized:
        weights_NK = weights_NK / weights_NK.sum(dim=-1, keepdim=True)
    return weights_NK
