"""Generic changes of what any module of a model reads or returns.

The other edits imitate known faults. These are a small language instead: a *site* and a change. A
site is the output or the input of a module, `self_attn.k_proj/out` in all layers, `3:mlp/in` in
one, `^norm/out` outside of the layers, or a parameter, `mixer.A_log/weight`. A change is a factor,
a bound, a function, another order of the units, a rounding, or the values of another position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.localisation.places import read_input, tensor_of
from hf.what_if.modules import activations, layers, norms, replaced
from hf.what_if.rounding import rounded

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "relu": nn.functional.relu,
    "relu2": lambda x: nn.functional.relu(x).square(),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": nn.functional.softplus,
    "elu": nn.functional.elu,
    "leaky_relu": nn.functional.leaky_relu,
    "mish": nn.functional.mish,
    "softsign": nn.functional.softsign,
    "square": torch.square,
    "absolute": torch.abs,
}
"""Elementwise functions, of a module's input in place of an activation, or of an output."""
_EXTRA = ("silu", "gelu", "relu", "tanh", "sigmoid")
"""Functions that are applied to the output of a module that has none."""
_ROUNDED = ("bfloat16", "fp8/row", "int8")


def _root_mean_square(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6).to(x.dtype)


def _paired(x: Tensor, *, back: bool) -> Tensor:
    """Halves in turn: the units 0, D/2, 1, D/2 + 1 and so on; or back."""
    shape = (-1, 2) if back else (2, -1)
    return x.reshape(*x.shape[:-1], *shape).transpose(-1, -2).flatten(-2)


_TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "negated": torch.neg,
    "reversed": lambda x: x.flip(-1),
    "halves": lambda x: x.roll(x.shape[-1] // 2, -1),
    "in turn": lambda x: _paired(x, back=False),
    "in halves": lambda x: _paired(x, back=True),
    "shifted": lambda x: x.roll(1, -1),
    "before": lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1),
    "normed": _root_mean_square,
    "centered": lambda x: x - x.mean(-1, keepdim=True),
}
"""Changes of a tensor (…, D)."""
_WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plus one": lambda x: x + 1,
    "minus one": lambda x: x - 1,
    "exponential": torch.exp,
    "logarithm": lambda x: x.abs().clamp(min=1e-6).log(),
    "softplus": nn.functional.softplus,
    "absolute": torch.abs,
}
"""Changes of a parameter: conventions in which checkpoints store it."""
_STORED = ("int8", "int4", "int4/group32", "fp8", "fp8/row", "mxfp4", "nvfp4", "bfloat16")
"""Formats of the weights of one kind of module."""
_WEIGHT = "weight"
EVERY = "*"
"""All matrices of a module, such as `mlp.experts.*`."""
_AGAIN, _SKIPPED, _ADDED, _TAKEN = "again", "skipped", "plus input", "minus input"
_SAME_SHAPE = (_SKIPPED, _ADDED, _TAKEN)


def sites(model: nn.Module) -> dict[str, nn.Module]:
    """The first module of each site without its end: of all layers, or `^` and outside of them."""
    stack = layers(model)
    within = {id(module) for layer in stack for module in layer.modules()}
    found: dict[str, nn.Module] = {}
    for layer in stack:
        for name, module in layer.named_modules():
            if not re.search(r"(^|\.)\d+(\.|$)", name):  # without a name: the layer itself
                found.setdefault(name, module)
    for name, module in model.named_modules():
        if name and id(module) not in within and not any(m is stack for m in module.modules()):
            found.setdefault(f"^{name}", module)
    return {n: m for n, m in found.items() if not isinstance(m, nn.Identity | nn.Dropout)}


def changes(model: nn.Module) -> Iterator[tuple[str, list[Any]]]:
    """Each site with the changes to try there."""
    scaling = {id(module) for _, module in norms(model)}
    functions = {id(getattr(parent, name)) for parent, name in activations(model)}
    for name, module in sites(model).items():
        if id(module) in functions:
            yield f"{name}/out", [_SKIPPED, *(f"of {f}" for f in _FUNCTIONS), *_TENSORS]
            continue
        again = [_AGAIN] if id(module) in scaling else []
        yield f"{name}/out", [*_TENSORS, *_SAME_SHAPE, *again, *_EXTRA, *_ROUNDED]
        if _reads_units(name, module, is_norm=id(module) in scaling):
            yield f"{name}/in", [*_TENSORS, *_EXTRA, *_ROUNDED]


def parameters(model: nn.Module) -> Iterator[tuple[str, list[Any]]]:
    """Each parameter as a site, with its changes.

    Factors and orders of a matrix are those of its module's input or output.
    """
    named = _parameters(model)
    for name in _blocks(named):
        yield f"{name}.{EVERY}/{_WEIGHT}", list(_STORED)
    for name, weight in named.items():
        if weight.ndim < 2:
            yield f"{name}/{_WEIGHT}", [*_WEIGHTS, *(n for n in _TENSORS if n not in _OF_TOKENS)]
        else:
            # A kernel with few taps, such as that of a short convolution, may be read backwards.
            taps = _TAPS if weight.ndim > _MATRIX else ()
            yield (
                f"{name}/{_WEIGHT}",
                [*_STORED, *(_WEIGHTS if "log" in name.lower() else ()), *taps],
            )


_TAPS = ("reversed", "shifted")
_MATRIX = 2
"""Dimensions of a matrix."""
_OF_TOKENS = ("before", "normed")
"""Changes of a sequence of positions, or without a meaning for a parameter."""


def _blocks(named: dict[str, nn.Parameter]) -> list[str]:
    """The modules of a layer with several matrices, which are often stored in one format."""
    matrices = [name for name, weight in named.items() if weight.ndim > 1 and name[0] != "^"]
    parts = [name.split(".") for name in matrices]
    inside = [".".join(each[:depth]) for each in parts for depth in range(1, len(each) - 1)]
    stacked = [".".join(each[:-1]) for each in parts if each[-1] != "weight"]
    found = dict.fromkeys((*inside, *stacked))
    return [name for name in found if sum(m.startswith(f"{name}.") for m in matrices) > 1]


def vectors(model: nn.Module) -> list[str]:
    """The parameters that are no matrices, as sites for a factor."""
    return [f"{name}/{_WEIGHT}" for name, one in _parameters(model).items() if one.ndim < 2]


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    stack = layers(model)
    within = {id(weight) for layer in stack for weight in layer.parameters()}
    found: dict[str, nn.Parameter] = {}
    for layer in stack:
        for name, weight in layer.named_parameters():
            if not re.search(r"(^|\.)\d+(\.|$)", name):
                found.setdefault(name, weight)
    outside = ((n, w) for n, w in model.named_parameters() if id(w) not in within)
    return found | {f"^{name}": weight for name, weight in outside}


def weights_at(model: nn.Module, site: str) -> list[nn.Parameter]:
    """The parameters of a site.

    Raises:
        InapplicableError: if the model has none.
    """
    path = site.rpartition("/")[0]
    number, colon, name = path.rpartition(":")
    if path.startswith("^"):
        found = [weight for full, weight in model.named_parameters() if full == path[1:]]
    else:
        stack = list(layers(model))
        block = name.removesuffix(EVERY)
        is_block = block != name
        found = [
            weight
            for layer in ([stack[int(number)]] if colon else stack)
            for own, weight in layer.named_parameters()
            if own == name or (is_block and _is_matrix(own, weight, block))
        ]
    if not found:
        raise InapplicableError(f"this model has no {path}")
    return found


def _is_matrix(name: str, weight: nn.Parameter, start: str) -> bool:
    return name.startswith(start) and weight.ndim > 1


def scaled(model: Any) -> list[str]:
    """The sites at which a factor is not another site's factor.

    A factor on the logits, or on the norm before the output head, is a temperature.
    """
    scaling = {id(module) for _, module in norms(model)}
    head = model.get_output_embeddings()
    last = [n for n, m in sites(model).items() if n.startswith("^") and id(m) in scaling]
    heated = {name for name, module in sites(model).items() if module is head or name in last[-1:]}
    return [
        *(f"{name}/out" for name in sites(model) if name not in heated),
        *(f"{n}/in" for n, m in sites(model).items() if _reads_units(n, m, id(m) in scaling)),
        *(site for site in vectors(model) if site.partition(".weight/")[0] not in heated),
    ]


def weighted(model: nn.Module) -> list[str]:
    """Outputs in several layers, for a factor of each: of modules with weights, and of layers."""
    if len(layers(model)) < 2:
        return []
    return [
        f"{name}/out"
        for name, module in sites(model).items()
        if not name.startswith("^")
        and (not name or any(True for _ in module.parameters(recurse=False)))
    ]


def _reads_units(name: str, module: nn.Module, is_norm: bool) -> bool:
    """Whether the input is not the output of a module that is a site itself."""
    return isinstance(module, nn.Linear) and not is_norm and not name.startswith("^")


def modules_at(model: nn.Module, site: str) -> tuple[list[nn.Module], str]:
    """The modules of a site, and its end.

    Raises:
        InapplicableError: if the model has none.
    """
    path, _, end = site.rpartition("/")
    number, colon, name = path.rpartition(":")
    if path.startswith("^"):
        found = [module for n, module in model.named_modules() if n == path[1:]]
    else:
        stack = list(layers(model))
        chosen = [stack[int(number)]] if colon else stack
        found = [module for layer in chosen for n, module in layer.named_modules() if n == name]
    if not found:
        raise InapplicableError(f"this model has no {path}")
    return found, end


@contextmanager
def site_scale(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor, `[site, factor]`."""
    site, factor = value
    with _changed(model, site, lambda x, _read, _module: x * float(factor)):
        yield


@contextmanager
def site_scales(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor for each layer that has the site, `[site, [factor, …]]`."""
    site, factors = value
    found, end = modules_at(model, str(site))
    if len(found) != len(factors):
        raise InapplicableError(f"{site} is in {len(found)} layers, not in {len(factors)}")
    by_module = dict(zip(map(id, found), map(float, factors), strict=True))
    with _hooked(found, end, lambda x, _read, module: x * by_module[id(module)]):
        yield


@contextmanager
def site_bound(model: nn.Module, value: Any) -> Iterator[None]:
    """A bound on the size of values, `[site, bound]`."""
    site, most = value
    with _changed(model, site, lambda x, _read, _module: x.clamp(-float(most), float(most))):
        yield


@contextmanager
def site_change(model: nn.Module, value: Any) -> Iterator[None]:
    """Another change, `[site, name]`."""
    site, name = value
    with _changed(model, site, _change(str(name))):
        yield


def changed_by(name: str, x: Tensor, read: Tensor | None, module: Any) -> Tensor:
    """A tensor after a change; see `site_change`."""
    return _change(name)(x, read, module)


_Change = Callable[[Tensor, Tensor | None, Any], Tensor]
"""From a tensor, the module's input if it has the same shape, and the module."""


def _change(name: str) -> _Change:
    if name in _WEIGHTS and name not in _FUNCTIONS:
        return lambda x, _read, _module: _WEIGHTS[name](x)
    if name in _TENSORS:
        return lambda x, _read, _module: _TENSORS[name](x)
    if name in _FUNCTIONS:
        return lambda x, _read, _module: _FUNCTIONS[name](x)
    if name in _ROUNDED or name in _STORED:
        return lambda x, _read, _module: rounded(x, name)
    if name.startswith("of "):
        return lambda _x, read, _module: _FUNCTIONS[name[3:]](_known(read))
    if name == _AGAIN:
        return lambda x, _read, module: _plainly(module, x)
    combined: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        _SKIPPED: lambda _x, read: read,
        _ADDED: lambda x, read: x + read,
        _TAKEN: lambda x, read: x - read,
    }
    if name not in combined:
        raise InapplicableError(f"there is no change {name!r}")
    return lambda x, read, _module: combined[name](x, _known(read))


def _known(read: Tensor | None) -> Tensor:
    if read is None:
        raise InapplicableError("its input has another shape")
    return read


def _plainly(module: Any, x: Tensor) -> Tensor:
    """The module once more, without hooks."""
    result: Tensor = module.forward(x)
    return result


@contextmanager
def _changed(model: nn.Module, site: Any, change: _Change) -> Iterator[None]:
    if str(site).endswith(f"/{_WEIGHT}"):
        with replaced(weights_at(model, str(site)), lambda weight: change(weight, None, None)):
            yield
        return
    found, end = modules_at(model, str(site))
    with _hooked(found, end, change):
        yield


@contextmanager
def _hooked(found: list[nn.Module], end: str, change: _Change) -> Iterator[None]:
    def after(module: Any, arguments: Any, named: Any, output: Any) -> Any:
        made, read = tensor_of(output), read_input(arguments, named)
        if made is None:
            raise InapplicableError("its output is no tensor")
        is_same = read is not None and read.shape == made.shape
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - a trace must not count this
            changed = change(made, read if is_same else None, module)
        if output is made:
            return changed
        if not isinstance(output, tuple):
            raise InapplicableError("its output has another form")
        return tuple(changed if each is made else each for each in output)

    def before(module: Any, arguments: Any, named: Any) -> Any:
        read = read_input(arguments, named)
        if read is None:
            raise InapplicableError("its input is no tensor")
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - see above
            changed = change(read, None, module)
        given = tuple(changed if each is read else each for each in arguments)
        return given, {n: changed if each is read else each for n, each in named.items()}

    with ExitStack() as stack:
        for module in found:
            handle = (
                module.register_forward_hook(after, with_kwargs=True)
                if end == "out"
                else module.register_forward_pre_hook(before, with_kwargs=True)
            )
            stack.callback(handle.remove)
        yield
