"""Edits of what a norm computes: with or without the mean, over other groups, without weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.modules import EPSILONS, norms, replaced

_GROUPS = ("group_size", "n_groups", "num_groups")
"""Attributes of norms that are taken over groups: the groups' width, or their number."""
_FRACTIONS = (1, 2, 4, 8)
_CLOSE = 1e-3


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
    except (TypeError, RuntimeError, ValueError):
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
        except (TypeError, RuntimeError, ValueError):
            return 1.0
    bias = getattr(module, "bias", None)
    rest = out if bias is None else out - bias
    return 1.0 if bool(rest.abs().max() == 0) else 0.0
