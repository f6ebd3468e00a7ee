"""Edits of routers: their precision, and the weights of the chosen experts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from contract import InapplicableError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hf.hooks import until_end
from hf.routers import Routers
from hf.what_if.modules import SIGMOIDS, replaced
from hf.what_if.rounding import rounded

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@contextmanager
def router_precision(model: Any, value: Any) -> Iterator[None]:
    """Run routers in another precision; `bfloat16/inputs` rounds only weights and inputs.

    So do `fp8` and `int8`, with one scale for the weights and one for each token.
    """
    routers = _routers(model)
    if value in ("fp8", "int8"):
        with _rounded_routers(routers, str(value)):
            yield
        return
    form, _, part = str(value).partition("/")
    dtype = _DTYPES[form]

    def lower(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        first = inputs[0].to(dtype)
        return (first.to(inputs[0].dtype) if part else first, *inputs[1:])

    def lift(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return _mapped(output, lambda part: part.float() if part.is_floating_point() else part)

    weights = [weight for router in routers for weight in router.parameters()]
    handles = [router.register_forward_pre_hook(lower) for router in routers]
    if not part:
        handles += [router.register_forward_hook(lift) for router in routers]
    with (
        until_end(handles),
        replaced(weights, lambda w: w.to(dtype).to(w.dtype) if part else w.to(dtype)),
    ):
        yield


@contextmanager
def _rounded_routers(routers: list[nn.Module], form: str) -> Iterator[None]:
    def lower(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        return (rounded(inputs[0], f"{form}/row"), *inputs[1:])

    matrices = [weight for router in routers for weight in router.parameters() if weight.ndim > 1]
    handles = [router.register_forward_pre_hook(lower) for router in routers]
    with until_end(handles), replaced(matrices, lambda w: rounded(w, f"{form}/tensor")):
        yield


@contextmanager
def router_weights(model: Any, value: Any) -> Iterator[None]:
    """Weights of the chosen experts.

    `raw` probabilities, `sum` to 1, or `equal`; `sigmoid`, `softmax`: scores of another function,
    with the family's sums; `corrected`: scores with the bias that is meant for the choice only.
    """

    def change(module: nn.Module, _inputs: Any, output: Any) -> Any:
        if not isinstance(output, tuple) or len(output) != _PARTS:
            raise InapplicableError("these routers return no weights")
        logits, scores, ids = output
        chosen = _weights(module, logits.float(), scores.float(), ids, str(value))
        return logits, chosen.to(scores.dtype), ids

    handles = [router.register_forward_hook(change) for router in _routers(model)]
    with until_end(handles):
        yield


def _weights(module: nn.Module, logits: Tensor, scores: Tensor, ids: Tensor, form: str) -> Tensor:
    """The weights of the chosen experts in another form."""
    if form == "equal":
        return torch.full_like(scores, 1 / scores.shape[-1])
    if form in ("raw", "sum"):
        chosen = logits.softmax(dim=-1).gather(-1, ids)
        return chosen / chosen.sum(dim=-1, keepdim=True) if form == "sum" else chosen
    own, others = (each(logits).gather(-1, ids) for each in _scorers(logits, scores, ids))
    new = others
    if form == "corrected":
        bias = next((b for name, b in vectors_of(module) if "bias" in name), None)
        if bias is None:
            raise InapplicableError("these routers have no bias")
        new = own + bias[ids]
    elif form != name_of_scores(logits, scores, ids, other=True):
        raise InapplicableError(f"these routers use a {form} already")
    totals = scores.sum(dim=-1, keepdim=True)
    if torch.allclose(totals, totals.mean(), rtol=_SAME):  # weights are normalized
        return new / new.sum(dim=-1, keepdim=True) * totals
    return scores * new / own


def score_places(model: Any) -> list[str]:
    """`output` if the router scales the inputs of experts; `input` if it scales their outputs."""
    counts = {_inputs_of(experts) for experts in Routers(model).expert_modules}
    return [name for name, count in (("output", 1), ("input", _PARTS)) if counts == {count}]


def _inputs_of(experts: nn.Module) -> int:
    return len(inspect.signature(experts.forward).parameters)


@contextmanager
def router_place(model: Any, value: Any) -> Iterator[None]:
    """The router scales the `output` of experts in a family that scales their input, or `input`.

    Experts that receive scaled inputs see each token once per expert, in the order of the experts.
    """
    found = Routers(model)
    if value not in score_places(model):
        raise InapplicableError(f"the routers of this model do not scale another {value}")
    with ExitStack() as stack:
        for router, experts in zip(found.modules, found.expert_modules, strict=True):
            if value == "input":
                plain = experts.forward
                changed = partial(_by_slot, plain)
                stack.enter_context(mock.patch.object(experts, "forward", changed))
                continue
            kept: list[Tensor] = []
            for hook in _scaled_after(router, experts, kept):
                stack.callback(hook.remove)
        yield


def _by_slot(plain: Any, hidden: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """The outputs of experts for inputs times their weights, slot by slot."""
    ones = torch.ones_like(weights[:, :1])
    slots = [
        plain(hidden * weights[:, [n]].to(hidden.dtype), ids[:, [n]], ones)
        for n in range(ids.shape[1])
    ]
    return torch.stack(slots).sum(dim=0)


def _scaled_after(router: nn.Module, experts: nn.Module, kept: list[Tensor]) -> Iterator[Any]:
    """Hooks that divide the experts' inputs by the router's scores, and multiply the outputs."""

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        kept[:] = [output[0].T.reshape(-1, 1)]

    def unscaled(_module: nn.Module, inputs: Any) -> Any:
        return (inputs[0] / kept[0].where(kept[0] > 0, 1.0), *inputs[1:])

    def scaled(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return (output.flatten(0, -2) * kept[0]).view(output.shape)

    yield router.register_forward_hook(note)
    yield experts.register_forward_pre_hook(unscaled)
    yield experts.register_forward_hook(scaled)


@contextmanager
def router_groups(model: Any, value: Any) -> Iterator[None]:
    """Groups of experts are compared by their `best` expert, or by the sum of their best `two`."""
    with _routed_in(model, _BestOfGroup if value == "best" else _TwoOfGroup):
        yield


@contextmanager
def router_scores(model: Any, value: Any) -> Iterator[None]:
    """Experts are chosen and weighted by their `softmax`, or by the `sigmoid` of each.

    A router with a bias for the choice then chooses others, unlike under `router_weights`.
    """
    with _routed_in(model, _ScoredBySoftmax if value == "softmax" else _ScoredBySigmoid):
        yield


@contextmanager
def _routed_in(model: Any, mode: type[TorchFunctionMode]) -> Iterator[None]:
    """Routers compute with other functions of torch."""

    def within(forward: Any, *inputs: Any, **named: Any) -> Any:
        with mode():
            return forward(*inputs, **named)

    with ExitStack() as stack:
        for router in _routers(model):
            changed = partial(within, router.forward)
            stack.enter_context(mock.patch.object(router, "forward", changed))
        yield


class _ScoredBySoftmax(TorchFunctionMode):
    """The sigmoid of each expert is replaced by a softmax over all."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SIGMOIDS:
            return args[0].softmax(dim=-1)
        return func(*args, **(kwargs or {}))


class _ScoredBySigmoid(TorchFunctionMode):
    """A softmax over all experts is replaced by the sigmoid of each."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if func in _SOFTMAXES:
            return args[0].to(named.get("dtype") or args[0].dtype).sigmoid()
        return func(*args, **named)


_SOFTMAXES = (torch.softmax, Tensor.softmax, nn.functional.softmax)


class _BestOfGroup(TorchFunctionMode):
    """The two best scores of a group are replaced by its best one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in (torch.topk, Tensor.topk) and args[0].ndim == _GROUPED:
            values, indices = found
            return (values[..., :1].expand(values.shape), indices)
        return found


class _TwoOfGroup(TorchFunctionMode):
    """The best score of a group is replaced by the sum of its two best ones."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in (torch.max, Tensor.max) and args[0].ndim == _GROUPED:
            two = args[0].topk(2, dim=-1).values.sum(dim=-1)
            return type(found)((two, found.indices))
        return found


_GROUPED = 3
"""Dimensions of scores by token, group and expert."""


def vectors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A module's own parameters and buffers by name."""
    yield from module.named_parameters(recurse=False)
    yield from module.named_buffers(recurse=False)


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softmax": lambda logits: logits.softmax(dim=-1),
}
_SAME = 1e-4
"""Relative difference up to which weights are proportional to scores."""


def name_of_scores(logits: Tensor, scores: Tensor, ids: Tensor, *, other: bool = False) -> str:
    """The function whose scores the weights are proportional to, or the other one.

    Raises:
        InapplicableError: if they are proportional to neither.
    """
    for name, function in SCORES.items():
        ratios = scores / function(logits).gather(-1, ids)
        if torch.allclose(ratios, ratios[:, :1].expand_as(ratios), rtol=_SAME):
            return next(each for each in SCORES if (each != name) == other)
    raise InapplicableError("the weights of these routers are of another form")


def _scorers(
    logits: Tensor, scores: Tensor, ids: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The family's function of the scores, and the other one."""
    name = name_of_scores(logits, scores, ids)
    return SCORES[name], SCORES[next(each for each in SCORES if each != name)]


_PARTS = 3
"""Logits, weights and ids, as most families' routers return them."""


def _routers(model: Any) -> list[nn.Module]:
    routers = Routers(model).modules
    if not routers:
        raise InapplicableError("this model has no routers")
    return routers


def _mapped(output: Any, change: Any) -> Any:
    if isinstance(output, tuple):
        return tuple(change(part) if isinstance(part, Tensor) else part for part in output)
    return change(output)
