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

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

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


class Tape:
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
    def watched(self, replay_BLDK: Tensor | None = None) -> Iterator[Tape]:
        """Record what the routers do inside, and force experts on them.

        It must last until the gradient is taken: gradient checkpointing runs the layers again.

        Args:
            replay_BLDK: experts per column of the pass; None leaves the routers free.
        """
        replay_DNK = None
        if replay_BLDK is not None:
            replay_DNK = replay_BLDK.flatten(0, 1).movedim(1, 0).long()
        tape = Tape(self.depth, replay_DNK)
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

    tape: Tape
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

    tape: Tape
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


class Gates(NamedTuple):
    """Where the old policy sent each response token, and how surely."""

    experts_BTDK: Tensor
    """The experts it activated, int16."""
    logprobs_BTDK: Tensor
    """Logarithms of their gate probabilities among all experts, float32."""

    def rows(self, rows_B: Tensor) -> Gates:
        """Those of some responses."""
        return Gates(self.experts_BTDK[rows_B], self.logprobs_BTDK[rows_B])


class Routes(NamedTuple):
    """How a pass over a batch was routed."""

    experts_BLDK: Tensor
    """The experts of every column, int16; `ABSENT` in the last, which is never read."""
    gates: Gates


def routes_of(tape: Tape, rows: int, length: int) -> Routes:
    """The routes of the latest pass.

    Args:
        tape: of the pass.
        rows: responses that it read.
        length: T, its last columns, which predict the response tokens.
    """
    experts_BLDK = tape.experts(rows)
    experts_BTDK = experts_BLDK[:, -length:]
    return Routes(
        torch.nn.functional.pad(experts_BLDK, (0, 0, 0, 0, 0, 1), value=ABSENT),
        Gates(experts_BTDK, _gate_logprobs(tape, experts_BTDK)),
    )


def join_routes(parts: Sequence[Routes | None]) -> Routes | None:
    """The routes of all parts of a batch; None if nobody asked for them."""
    there = [part for part in parts if part is not None]
    if not there:
        return None
    gates = [part.gates for part in there]
    return Routes(
        torch.cat([part.experts_BLDK for part in there]),
        Gates(*(torch.cat(each) for each in zip(*gates, strict=True))),
    )


def router_shift(old: Gates, tape: Tape) -> Tensor:
    """How far the routers moved away from the old policy's at each response token, shape (B, T).

    exp(-mean over layers and experts of |log gate - log old gate|), over the experts that the old
    policy activated: 1 where nothing moved. It has no gradient.

    Source: RSPO, arXiv 2510.23027.
    """
    moved_BTDK = _gate_logprobs(tape, old.experts_BTDK) - old.logprobs_BTDK
    return torch.exp(-moved_BTDK.abs().mean(dim=(2, 3)))


def _gate_logprobs(tape: Tape, experts_BTDK: Tensor) -> Tensor:
    rows, length = experts_BTDK.shape[:2]
    logits_BTDE = tape.logits(rows)[:, -length:]
    return torch.log_softmax(logits_BTDE, dim=-1).gather(3, experts_BTDK.long())


class ReplayCounts(NamedTuple):
    """How a replay went, counted over the tokens that bear loss, per layer, shape (D,) each."""

    expected_D: Tensor
    present_D: Tensor
    """Tokens whose experts were known."""
    obeyed_D: Tensor
    """Of those, tokens whose layer then asked for just these experts."""


def sum_counts(counts: Sequence[ReplayCounts | None]) -> ReplayCounts | None:
    """All of them together; None if there are none."""
    there = [each for each in counts if each is not None]
    return ReplayCounts(*(sum(parts) for parts in zip(*there, strict=True))) if there else None


def replay_counts(tape: Tape, replay_BLDK: Tensor, mask_BT: Tensor) -> ReplayCounts:
    """Compare what was to be replayed with what the experts of the latest pass were asked for."""
    rows, length = mask_BT.shape
    wanted_NDK = replay_BLDK[:, -length:][mask_BT]
    used_NDK = tape.experts(rows)[:, -length:][mask_BT]
    present_ND = (wanted_NDK >= 0).all(dim=2)
    same_ND = (wanted_NDK.sort(dim=2).values == used_NDK.sort(dim=2).values).all(dim=2)
    expected_D = torch.full_like(present_ND.sum(dim=0), present_ND.shape[0])
    return ReplayCounts(expected_D, present_ND.sum(dim=0), (present_ND & same_ND).sum(dim=0))


class RouteBook:
    """The experts of a batch, written down while it is decoded; `ABSENT` where nothing was read.

    Args:
        tape: of the passes to come.
        routers: whose.
        prompt_attention: true where a prompt's token is real, one row per distinct prompt.
        origin_B: which prompt each response has.
        room: longest response.
    """

    def __init__(
        self, tape: Tape, routers: Routers, prompt_attention: Tensor, origin_B: Tensor, room: int
    ) -> None:
        self._tape, self._attention, self._origin_B = tape, prompt_attention, origin_B
        self._width = prompt_attention.shape[1]
        shape = (len(origin_B), self._width + room, routers.depth, routers.slots)
        device = origin_B.device
        self._experts_BLDK = torch.full(shape, ABSENT, dtype=torch.int16, device=device)

    def note_prompt(self) -> None:
        """Write down the pass over the distinct prompts."""
        experts = self._tape.experts(len(self._attention))
        experts[~self._attention] = ABSENT
        self._experts_BLDK[:, : self._width] = experts[self._origin_B]

    def note_token(self, rows_R: Tensor, running_R: Tensor, index: int) -> None:
        """Write down the pass that read response token `index` of the rows still running."""
        experts_RDK = self._tape.experts(len(rows_R))[:, 0]
        self._experts_BLDK[rows_R[running_R], self._width + index] = experts_RDK[running_R]

    def experts(self, length: int) -> Tensor:
        """What is known, int16, shape (B, L, D, K), for responses of `length` columns."""
        return self._experts_BLDK[:, : self._width + length]
