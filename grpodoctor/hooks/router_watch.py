"""`RouterWatch`: what the routers of any transformers mixture of experts do, in any pass.

Since version 5, transformers writes all mixtures alike: a layer calls its router, which returns the
logits over the experts, and then `experts(states, ids, weights)`. Hooks on the two modules
therefore see the routing of every family, with the experts that were really used. Shape suffixes:
N tokens of the sample, L layers with a router, E experts per layer, K experts per token.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import DataError
from grpodoctor.hooks.guard import Guard
from grpodoctor.measure.experts import ExpertBatch, churn_readings, expert_readings
from grpodoctor.vocabulary.values import Reading

if TYPE_CHECKING:
    from torch import Tensor, nn

_ROUTER_NAMES = ("gate", "router")
_EXPERT_PARAMETERS = 4
"""self, states, ids and weights."""
_PART = "router watch"
_SOFTMAX_TOLERANCE = 0.02
"""Largest difference between the logarithms of a softmax's weights and the logits, as a share of
the logits' differences. bfloat16 rounds weights by 0.4 %; a sigmoid differs by 5 % at a logit of -3
and by half at 0."""


@dataclass(frozen=True, slots=True)
class Routing:
    """The routing of a sample of one pass's tokens: N tokens, L layers, K experts per token."""

    experts: int
    """Experts per layer."""
    used_NLK: NDArray[np.int16]
    """The experts that each token used, shape (N, L, K)."""
    entropy_NL: NDArray[np.float32] | None
    """Entropy of the router's distribution in nats, shape (N, L); None if it is no softmax of the
    logits."""
    margin_NL: NDArray[np.float32] | None
    """Logit of the last selected expert minus that of the first one not selected, shape (N, L);
    None if the router does not select by its logits alone."""

    @property
    def load_LE(self) -> NDArray[np.int64]:
        """Tokens per layer and expert, shape (L, E)."""
        layers = range(self.used_NLK.shape[1])
        counts = [np.bincount(self.used_NLK[:, i].ravel(), minlength=self.experts) for i in layers]
        return np.array(counts)

    def readings(self) -> dict[str, Reading]:
        """`experts/*` of this pass: load, entropy and margin, overall and per layer."""
        blank = np.zeros(self.used_NLK.shape[:2], np.float32)
        entropy_NL = blank if self.entropy_NL is None else self.entropy_NL
        margin_NL = blank if self.margin_NL is None else self.margin_NL
        readings = expert_readings(
            ExpertBatch(
                experts=self.experts,
                used_NLK=self.used_NLK,
                entropy_NL=entropy_NL,
                margin_NL=margin_NL,
            )
        )
        unknown = [] if self.entropy_NL is not None else ["experts/router_entropy"]
        unknown += [] if self.margin_NL is not None else ["experts/router_margin"]
        return {
            name: reading
            for name, reading in readings.items()
            if not name.startswith(tuple(unknown))
        }

    def churn(
        self, earlier: Routing, between: Literal["update", "engine"] = "update"
    ) -> dict[str, Reading]:
        """The share of experts that differ from an earlier pass over the same tokens.

        Args:
            earlier: routing of the same tokens: before an update, of another checkpoint, or of
                another engine.
            between: name of the reading, `experts/churn_update` or `experts/churn_engine`.

        Raises:
            DataError: if the two are not of the same number of tokens, layers and experts.
        """
        return churn_readings(earlier.used_NLK, self.used_NLK, between=between)


class RouterWatch:
    """Records the routing of the model's latest forward pass, for a sample of its tokens.

        watch = RouterWatch(model)
        before = watch.measure(input_ids, attention_mask)
        ...                                        # an optimizer step, or another checkpoint
        after = watch.measure(input_ids, attention_mask)
        after.readings() | after.churn(before)

    The training's own passes are recorded too: `watch.routing()` after a forward pass. Nothing is
    raised into a pass, and no number of it changes. Memory is bounded by the sample: tokens of
    equal distance, the same ones in every pass of the same shape.

    Args:
        model: a transformers model with routers, such as Mixtral, Qwen3-MoE, OLMoE or DeepSeek.
        tokens: most tokens of a pass that are kept.
    """

    def __init__(self, model: nn.Module, tokens: int = 2048) -> None:
        self._model, self._most = model, max(1, tokens)
        self._guard = Guard()
        self._ids: dict[int, NDArray[np.int16]] = {}
        self._logits: dict[int, NDArray[np.float32]] = {}
        self._weights: dict[int, NDArray[np.float32]] = {}
        self._experts = 0
        self._by_logits: dict[int, bool] = {}
        self._rows: Tensor | None = None
        self._mask: Tensor | None = None
        self._handles: list[Any] = []
        self.layers: tuple[str, ...] = ()
        """Names of the modules whose routing is recorded."""
        self._guard.run(_PART, self._install)

    def _install(self) -> None:
        pairs = _router_pairs(self._model)
        if not pairs:
            raise DataError(
                f"{type(self._model).__name__} has no router that can be watched",
                remedy="pass a transformers mixture of experts, and transformers 5 or later",
            )
        self.layers = tuple(pairs)
        run = self._guard.run
        before = lambda _, args, kwargs: run(_PART, self._begin, args, kwargs)  # noqa: E731
        self._handles = [self._model.register_forward_pre_hook(before, with_kwargs=True)]
        for layer, (router, experts) in enumerate(pairs.values()):
            self._by_logits[layer] = not hasattr(router, "e_score_correction_bias")
            self._handles += [
                router.register_forward_hook(_TakeLogits(self, layer)),
                experts.register_forward_pre_hook(_TakeIds(self, layer)),
            ]

    def _begin(self, _args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Forget the previous pass, and note which tokens are padding."""
        self._ids, self._logits, self._weights, self._rows = {}, {}, {}, None
        mask = kwargs.get("attention_mask")
        self._mask = mask if getattr(mask, "ndim", 0) == 2 else None

    def take_logits(self, layer: int, output: Any) -> None:
        """Store a router's logits."""
        self._guard.run(_PART, self._take_logits, layer, output)

    def take_ids(self, layer: int, arguments: tuple[Any, ...]) -> None:
        """Store the experts that a layer uses."""
        self._guard.run(_PART, self._take_ids, layer, arguments)

    def _take_logits(self, layer: int, output: Any) -> None:
        logits_NE = output[0] if isinstance(output, tuple) else output
        logits_NE = logits_NE.detach().flatten(0, -2)
        self._experts = int(logits_NE.shape[-1])
        rows = self._sampled_rows(logits_NE)
        self._logits[layer] = logits_NE[rows].float().cpu().numpy()

    def _take_ids(self, layer: int, arguments: tuple[Any, ...]) -> None:
        ids_NK = arguments[1].detach().flatten(0, -2)
        rows = self._sampled_rows(ids_NK)
        self._ids[layer] = ids_NK[rows].cpu().numpy().astype(np.int16)
        weights = arguments[2].detach()
        if weights.numel() == ids_NK.numel():
            self._weights[layer] = weights.view_as(ids_NK)[rows].float().cpu().numpy()

    def _sampled_rows(self, of_tokens: Tensor) -> Tensor:
        """Numbers of the tokens in the sample: without padding, at equal distances."""
        import torch

        if self._rows is None:
            count = of_tokens.shape[0]
            rows = torch.arange(count, device=of_tokens.device)
            if self._mask is not None and self._mask.numel() == count:
                rows = rows[self._mask.flatten().to(of_tokens.device) > 0]
            if len(rows) > self._most:
                chosen = torch.arange(self._most, device=rows.device) * len(rows) // self._most
                rows = rows[chosen]
            self._rows, self._mask = rows, None
        return self._rows

    def routing(self) -> Routing | None:
        """The routing of the latest forward pass; None if there is none."""
        return self._guard.run(_PART, self._routing)

    def _routing(self) -> Routing | None:
        layers = range(len(self.layers))
        if not layers or any(layer not in self._ids for layer in layers):
            return None
        used_NLK = np.stack([self._ids[layer] for layer in layers], axis=1)
        if any(layer not in self._logits for layer in layers):
            return Routing(int(used_NLK.max()) + 1, used_NLK, None, None)
        logits_NLE = np.stack([self._logits[layer] for layer in layers], axis=1)
        if not all(self._by_logits.values()):
            return Routing(self._experts, used_NLK, None, None)
        margin_NL = _margins(logits_NLE, used_NLK)
        is_top = bool((margin_NL >= 0).all())
        entropy_NL = _entropies(logits_NLE) if self._is_softmax(logits_NLE, used_NLK) else None
        return Routing(self._experts, used_NLK, entropy_NL, margin_NL if is_top else None)

    def _is_softmax(self, logits_NLE: NDArray[np.float32], used_NLK: NDArray[np.int16]) -> bool:
        """Whether the weights of the used experts are proportional to the logits' exponentials.

        With one expert per token there is nothing to compare, and the answer is no.
        """
        if len(self._weights) < len(self.layers):
            return False
        weights_NLK = np.stack([self._weights[layer] for layer in range(len(self.layers))], axis=1)
        if not (weights_NLK > 0).all():
            return False
        logits_NLK = np.take_along_axis(logits_NLE, used_NLK.astype(np.int64), axis=2)
        wanted, own = np.diff(logits_NLK, axis=2), np.diff(np.log(weights_NLK), axis=2)
        spread = float(np.abs(wanted).sum())
        return spread > 0 and float(np.abs(own - wanted).sum()) <= _SOFTMAX_TOLERANCE * spread

    def measure(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Routing | None:
        """The routing of a separate pass, without gradient and without dropout.

        Args:
            input_ids: tokens, shape (B, L).
            attention_mask: false for padding, shape (B, L).

        Returns:
            The routing; None if the model has no router that can be watched, or the pass failed.
        """
        return self._guard.run(_PART, self._measure, input_ids, attention_mask)

    def _measure(self, input_ids: Tensor, attention_mask: Tensor | None) -> Routing | None:
        import torch

        training = [module for module in self._model.modules() if module.training]
        self._model.eval()
        try:
            with torch.no_grad():
                self._model(input_ids=input_ids, attention_mask=attention_mask, **self._no_cache())
        finally:
            for module in training:  # `train()` would also set modules that the user keeps in eval
                module.training = True
        return self._routing()

    def _no_cache(self) -> dict[str, bool]:
        parameters = inspect.signature(type(self._model).forward).parameters
        return {"use_cache": False} if "use_cache" in parameters else {}

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


@dataclass(frozen=True, slots=True)
class _TakeLogits:
    """Forward hook of a router; it returns None, so that the output stays as it is."""

    watch: RouterWatch
    layer: int

    def __call__(self, _router: nn.Module, _arguments: Any, output: Any) -> None:
        self.watch.take_logits(self.layer, output)


@dataclass(frozen=True, slots=True)
class _TakeIds:
    """Hook in front of a layer's experts; the arguments stay as they are."""

    watch: RouterWatch
    layer: int

    def __call__(self, _experts: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.watch.take_ids(self.layer, arguments)


def _router_pairs(model: nn.Module) -> dict[str, tuple[nn.Module, nn.Module]]:
    """Router and experts of each layer, by the name of the block that holds both."""
    modules = dict(model.named_modules())
    pairs: dict[str, tuple[nn.Module, nn.Module]] = {}
    for name, experts in modules.items():
        block, _, last = name.rpartition(".")
        routers = [modules[key] for each in _ROUTER_NAMES if (key := f"{block}.{each}") in modules]
        if last == "experts" and routers and _takes_ids(experts):
            pairs[block] = (routers[0], experts)
    return pairs


def _takes_ids(experts: nn.Module) -> bool:
    """Whether the experts of a layer are one module that receives the chosen ids."""
    return len(inspect.signature(type(experts).forward).parameters) == _EXPERT_PARAMETERS


def _entropies(logits_NLE: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = logits_NLE.astype(np.float64) - logits_NLE.max(axis=2, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=2)
    entropy_NL: NDArray[np.float64] = np.log(total) - (weights * shifted).sum(axis=2) / total
    return entropy_NL.astype(np.float32)


def _margins(logits_NLE: NDArray[np.float32], used_NLK: NDArray[np.int16]) -> NDArray[np.float32]:
    """Smallest logit of a used expert minus the largest one of the others."""
    used_NLE = np.zeros(logits_NLE.shape, bool)
    np.put_along_axis(used_NLE, used_NLK.astype(np.int64), values=True, axis=2)
    lowest = np.where(used_NLE, logits_NLE, np.inf).min(axis=2)
    highest = np.where(used_NLE, -np.inf, logits_NLE).max(axis=2)
    margins: NDArray[np.float32] = (lowest - highest).astype(np.float32)
    return margins
