"""Edits of what a norm computes: the mean, groups, weights, the place of a gate, the precision."""

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

from hf.what_if.modules import EPSILONS, norms, replaced

_GROUPS = ("group_size", "n_groups", "num_groups")
"""Attributes of norms that are taken over groups: the groups' width, or their number."""
_FRACTIONS = (1, 2, 4, 8)
_CLOSE = 1e-3
_UNFIT = (TypeError, RuntimeError, ValueError, AttributeError)
"""What a norm raises that needs more than its input, such as a gate."""


def mean_kinds(model: nn.Module) -> list[str]:
    """`without` if the model's norms subtract the mean, `with` if they do not."""
    kinds = {_subtracts_mean(module) for module in _all_norms(model)}
    return [name for name, kind in (("without", True), ("with", False)) if kind in kinds]


@contextmanager
def norm_mean(model: nn.Module, value: Any) -> Iterator[None]:
    """Norms `with` or `without` the mean subtracted, where the family does it the other way."""
    wanted = str(value) == "with"
    chosen = [each for each in _all_norms(model) if _subtracts_mean(each) is not wanted]
    if not chosen:
        raise InapplicableError(f"all norms of this model are {value} a mean")
    with ExitStack() as stack:
        for module in chosen:
            if wanted:
                hook = module.register_forward_pre_hook(_centred)
            else:
                hook = module.register_forward_hook(_uncentred)
            stack.callback(hook.remove)
        yield


def _centred(_module: nn.Module, inputs: Any) -> Any:
    return (inputs[0] - inputs[0].mean(-1, keepdim=True), *inputs[1:])


def _uncentred(module: Any, inputs: Any, output: Tensor) -> Tensor:
    """The output of a layer norm that subtracts no mean."""
    whole = inputs[0].float()
    eps = next((float(getattr(module, e)) for e in EPSILONS if hasattr(module, e)), 1e-5)
    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
    for offset in (0.0, 1.0):  # some families store the weight less one
        scaled = _times(whole - whole.mean(-1, keepdim=True), weight, bias, eps, offset)
        if torch.allclose(scaled, output.float(), rtol=_CLOSE, atol=_CLOSE):
            return _times(whole, weight, bias, eps, offset).to(output.dtype)
    raise InapplicableError("the norms of this model are of another form")


def _times(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, offset: float
) -> Tensor:
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    x = x if weight is None else x * (weight.float() + offset)
    return x if bias is None else x + bias.float()


def _all_norms(model: nn.Module) -> list[nn.Module]:
    """Normalization layers, also those whose epsilon is a constant."""
    return [each for each in model.modules() if _width(each)]


def _width(module: Any) -> int:
    """The width of a norm; 0 for other modules, and for norms over several dimensions."""
    if "norm" not in type(module).__name__.lower() or any(True for _ in module.children()):
        return 0
    weight, shape = getattr(module, "weight", None), getattr(module, "normalized_shape", None)
    if isinstance(weight, Tensor):
        return weight.numel() if weight.ndim == 1 else 0
    return int(shape[-1]) if isinstance(shape, tuple | list) else 0


def _subtracts_mean(module: Any) -> bool | None:
    """Whether a norm's output stays if a number is added to its input; None if it cannot run."""
    weight = getattr(module, "weight", None)
    device = weight.device if isinstance(weight, Tensor) else torch.device("cpu")
    dtype = weight.dtype if isinstance(weight, Tensor) else torch.float32
    x = torch.linspace(-1, 1, _width(module), device=device, dtype=dtype).sin()[None, None]
    try:
        with torch.no_grad():
            one, other = module.forward(x).float(), module.forward(x + 1).float()
    except _UNFIT:
        return None
    return bool((one - other).abs().max() < 0.1 * one.abs().max())


def group_widths(model: nn.Module) -> list[int]:
    """Other widths of the groups of norms by groups, one of them the whole width."""
    now = [(module, _group_width(module, name)) for module, name in _grouped(model)]
    widths = {_width(module) // part for module, _ in now for part in _FRACTIONS}
    return sorted(width for width in widths if width > 1 and any(n != width for _, n in now))


@contextmanager
def norm_group_width(model: nn.Module, value: Any) -> Iterator[None]:
    """Norms by groups are taken over groups of this width."""
    width, found = int(value), _grouped(model)
    if not found:
        raise InapplicableError("this model has no norm by groups")
    with ExitStack() as stack:
        for module, name in found:
            if _width(module) % width:
                raise InapplicableError(f"the width of a norm is no multiple of {width}")
            wanted = width if name.endswith("size") else _width(module) // width
            stack.enter_context(mock.patch.object(module, name, wanted))
        yield


def _grouped(model: nn.Module) -> list[tuple[Any, str]]:
    return [
        (module, name)
        for module in _all_norms(model)
        for name in _GROUPS
        if isinstance(getattr(module, name, None), int) and getattr(module, name) > 0
    ]


def _group_width(module: Any, name: str) -> int:
    value = int(getattr(module, name))
    return value if name.endswith("size") else _width(module) // value


def weighted(model: nn.Module) -> list[str]:
    """Names of the norms with weights, such as `mamba.norm`."""
    return list(dict.fromkeys(_name(path) for path, each in norms(model) if _has_weight(each)))


def _name(path: str) -> str:
    """The last two parts of a path without the numbers of layers."""
    return ".".join([part for part in path.split(".") if not part.isdigit()][-2:])


def _has_weight(module: Any) -> bool:
    return _weight(module) is not None


@contextmanager
def unweighted_norm(model: nn.Module, value: Any) -> Iterator[None]:
    """The weights of the norms with a name change nothing, as if they were not loaded."""
    found: list[Any] = [
        each for path, each in norms(model) if _name(path) == value and _has_weight(each)
    ]
    if not found:
        raise InapplicableError(f"this model has no weights in norms {value}")
    neutral = {id(module.weight): _neutral(module) for module in found}
    kept: list[Any] = [module.weight for module in found]
    with replaced(kept, _filler(neutral, kept)):
        yield


def _filler(neutral: dict[int, float], weights: list[Any]) -> Callable[[Tensor], Tensor]:
    numbers = {weight.data.data_ptr(): neutral[id(weight)] for weight in weights}
    return lambda data: torch.full_like(data, numbers[data.data_ptr()])


def _weight(module: Any) -> Any:
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, nn.Parameter) and weight.ndim == 1 else None


def _neutral(module: Any) -> float:
    """1 where the weight is a factor; 0 where one is added to it."""
    x = torch.ones(1, 1, module.weight.numel(), device=module.weight.device)
    x[..., ::2] = -1
    with torch.no_grad(), replaced([module.weight], torch.zeros_like):
        try:
            out = module.forward(x.to(module.weight.dtype))
        except _UNFIT:
            return 1.0
    bias = getattr(module, "bias", None)
    rest = out if bias is None else out - bias
    return 1.0 if bool(rest.abs().max() == 0) else 0.0


def gated(model: nn.Module) -> list[nn.Module]:
    """Norms that receive a gate next to their input, as those of state-space layers."""
    return [
        module
        for _, module in norms(model)
        if "gate" in inspect.signature(module.forward).parameters
    ]


@contextmanager
def gated_norm(model: nn.Module, value: Any) -> Iterator[None]:
    """These norms are gated `after` the normalization, or `before` it."""
    found = gated(model)
    if not found:
        raise InapplicableError("this model has no gated norm")
    with ExitStack() as stack:
        for module in found:
            changed = partial(_gated, module.forward, str(value))
            stack.enter_context(mock.patch.object(module, "forward", changed))
        yield


def _gated(plain: Any, order: str, hidden: Tensor, gate: Tensor | None = None) -> Tensor:
    if gate is None:
        raise InapplicableError("the norms of this model receive no gate")
    factor = nn.functional.silu(gate.float())
    neutral = torch.full_like(gate, _SILU_IS_ONE)
    if order == "before":
        normal: Tensor = plain((hidden.float() * factor).to(hidden.dtype), neutral)
        return normal
    normal = plain(hidden, neutral)
    return (normal.float() * factor).to(normal.dtype)


_SILU_IS_ONE = 1.2784645427610738
"""The number whose SiLU is 1."""


@contextmanager
def norm_rounding(model: nn.Module, value: Any) -> Iterator[None]:
    """All norms compute in 16 bits, although the family converts their input to float32."""
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[str(value)]
    found = [module for _, module in norms(model)]
    weights = [weight for module in found for weight in module.parameters(recurse=False)]
    with ExitStack() as stack:
        for module in found:
            changed = partial(_lowered, module.forward, dtype)
            stack.enter_context(mock.patch.object(module, "forward", changed))
        stack.enter_context(replaced(weights, lambda weight: weight.to(dtype)))
        yield


def _lowered(plain: Any, dtype: torch.dtype, hidden: Tensor, *rest: Any, **named: Any) -> Any:
    with _KeptDtype():
        output: Tensor = plain(hidden.to(dtype), *rest, **named)
    return torch.Tensor.to(output, hidden.dtype)


class _KeptDtype(TorchFunctionMode):
    """Conversions to float32 change nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = (*args[1:], *(kwargs or {}).values())
        if func is Tensor.float or (func is Tensor.to and torch.float32 in wanted):
            return args[0]
        return func(*args, **(kwargs or {}))
