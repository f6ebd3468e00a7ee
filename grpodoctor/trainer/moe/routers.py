"""The routers of a mixture of experts: what they chose, and making them choose it again.

A router gives each token logits over the experts; the K largest are activated, weighted by their
gate probabilities. Two passes over the same tokens may activate others: in an engine of another
precision, or after an optimizer step. Routing replay forces given experts in place of the router's
own (`replays` says which); their gate weights are recomputed from the current logits, so that the
router keeps a gradient.

Everything works through hooks that exist only while a pass is watched; a dense model has none.
Shape suffixes beside the usual: D layers with a router, E experts, K experts of a token.
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
"""Stands for an expert that nobody recorded; the router is free there."""

_FAMILIES = {
    "mixtral": "MixtralTopKRouter",
    "qwen2_moe": "Qwen2MoeTopKRouter",
    "qwen3_moe": "Qwen3MoeTopKRouter",
}
"""Families whose router returns logits, weights and ids of the chosen experts, by model type."""

_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""What configurations call the number of experts."""

_Output = tuple[Tensor, Tensor, Tensor]


def is_mixture(model: PreTrainedModel) -> bool:
    """Whether the model has experts, of whatever family."""
    config = model.config.get_text_config()
    return any((getattr(config, name, None) or 0) > 1 for name in _EXPERT_COUNTS)


def routers_of(model: PreTrainedModel) -> Routers | None:
    """The model's routers; None for a dense model and for a family that is not known."""
    family = model.config.get_text_config().model_type
    if not is_mixture(model) or family not in _FAMILIES:
        return None
    return Routers(model, family)


def require_routers(model: PreTrainedModel, what: str) -> Routers:
    """The model's routers, for something that is nothing without them.

    Args:
        model: that is trained.
        what: wants them, for the error.

    Raises:
        ModelError: if the model is dense, or of a family whose routers are not known.
    """
    routers = routers_of(model)
    if routers is not None:
        return routers
    family = model.config.get_text_config().model_type
    if is_mixture(model):
        raise ModelError(
            f"{what} cannot read the routers of a {family} model",
            where="model.name",
            remedy=f"use a model of {', '.join(_FAMILIES)}",
        )
    raise ModelError(
        f"{what} needs a mixture of experts, and this {family} model is dense",
        where="model.name",
        remedy="name a mixture, or train the built-in one by model.experts=8",
    )


class RoutingRecord:
    """What the routers did in the latest pass.

    Args:
        depth: routers.
        replay_DNK: experts to force on each token, `ABSENT` where the router is free; None forces
            nothing.
    """

    def __init__(self, depth: int, replay_DNK: Tensor | None) -> None:
        self.replay_DNK = replay_DNK
        self._logits: list[Tensor | None] = [None] * depth
        self._experts: list[Tensor | None] = [None] * depth

    def note_logits(self, layer: int, logits_NE: Tensor) -> None:
        """Keep a router's logits; those of an earlier pass are forgotten."""
        self._logits[layer] = logits_NE.detach()

    def note_experts(self, layer: int, ids_NK: Tensor) -> None:
        """Keep what a layer's experts were asked for."""
        self._experts[layer] = ids_NK.detach()

    def logits(self, rows: int) -> Tensor:
        """The routers' logits, float32, shape (rows, columns, D, E)."""
        return _by_row(self._logits, rows).float()

    def experts(self, rows: int) -> Tensor:
        """The experts that worked, forced or chosen, int16, shape (rows, columns, D, K)."""
        return _by_row(self._experts, rows).to(torch.int16)


def _by_row(layers: list[Tensor | None], rows: int) -> Tensor:
    there = [layer for layer in layers if layer is not None]
    if len(there) != len(layers):
        raise RuntimeError("a router was not asked in this pass")
    stacked = torch.stack(there, dim=1)
    return stacked.view(rows, -1, *stacked.shape[1:])


class Routers:
    """All routers of a model, in the order of its layers.

    Args:
        model: a mixture of experts of a known family.
        family: its model type.
    """

    def __init__(self, model: PreTrainedModel, family: str) -> None:
        source = import_module(f"transformers.models.{family}.modeling_{family}")
        kind: type[nn.Module] = getattr(source, _FAMILIES[family])
        modules = dict(model.named_modules())
        names = [name for name, module in modules.items() if isinstance(module, kind)]
        self._routers = [modules[name] for name in names]
        self._experts = [modules[f"{name.rpartition('.')[0]}.experts"] for name in names]
        config = model.config.get_text_config()
        self.experts: int = getattr(config, "num_local_experts", None) or config.num_experts
        """E, experts of a layer."""
        self.slots: int = config.num_experts_per_tok
        """K, experts that a token activates."""

    @property
    def depth(self) -> int:
        """D, layers with a router."""
        return len(self._routers)

    @contextmanager
    def recording(self, replay_BLDK: Tensor | None = None) -> Iterator[RoutingRecord]:
        """Record what the routers do inside, and force experts on them.

        It must last until the gradient is taken: gradient checkpointing runs the layers again.

        Args:
            replay_BLDK: experts per column of the pass; None leaves the routers free.
        """
        replay_DNK = None
        if replay_BLDK is not None:
            replay_DNK = replay_BLDK.flatten(0, 1).movedim(1, 0).long()
        tape = RoutingRecord(self.depth, replay_DNK)
        with ExitStack() as hooks:
            for layer, (router, experts) in enumerate(
                zip(self._routers, self._experts, strict=True)
            ):
                hooks.callback(router.register_forward_hook(_RouterHook(tape, layer)).remove)
                hooks.callback(experts.register_forward_pre_hook(_ExpertHook(tape, layer)).remove)
            yield tape


@dataclass(frozen=True, slots=True)
class _RouterHook:
    """Notes one router's logits and puts the replayed experts into its answer."""

    tape: RoutingRecord
    layer: int

    def __call__(
        self, router: nn.Module, _arguments: tuple[Tensor, ...], output: _Output
    ) -> _Output | None:
        logits_NE, weights_NK, chosen_NK = output
        self.tape.note_logits(self.layer, logits_NE)
        if self.tape.replay_DNK is None:
            return None
        given_NK = self.tape.replay_DNK[self.layer]
        ids_NK = torch.where((given_NK >= 0).all(dim=1, keepdim=True), given_NK, chosen_NK)
        # Mixtral has no such setting and always normalises.
        normalised = bool(getattr(router, "norm_topk_prob", True))
        return logits_NE, gate_weights(logits_NE, ids_NK, normalised).to(weights_NK.dtype), ids_NK


@dataclass(frozen=True, slots=True)
class _ExpertHook:
    """Notes which experts one layer was really asked for."""

    tape: RoutingRecord
    layer: int

    def __call__(self, _experts: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        _, ids_NK, _ = arguments
        self.tape.note_experts(self.layer, ids_NK)


def gate_weights(logits_NE: Tensor, ids_NK: Tensor, normalised: bool) -> Tensor:
    """The gate weights of given experts under the current logits, shape (N, K); differentiable.

    Args:
        logits_NE: of the router.
        ids_NK: the experts.
        normalised: whether the weights of a token's experts sum to one.
    """
    weights_NK = torch.softmax(logits_NE, dim=-1, dtype=torch.float32).gather(1, ids_NK)
    if normalised:
        weights_NK = weights_NK / weights_NK.sum(dim=-1, keepdim=True)
    return weights_NK
