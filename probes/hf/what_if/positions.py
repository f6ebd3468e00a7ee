"""Edits of rotary positions: base, scaling, pairing of dimensions."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end


def rotary_modules(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Each buffer of inverse frequencies: its module and its name."""
    return [
        (module, name)
        for module in model.modules()
        for name, _ in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and not re.search("original|long", name)
    ]


@contextmanager
def rope_base(model: nn.Module, value: Any) -> Iterator[None]:
    """Rotate with another base."""
    with changed_frequencies(model, lambda now: float(value) ** -(_steps(now) / now.numel())):
        yield


@contextmanager
def rope_scaling(model: nn.Module, value: Any) -> Iterator[None]:
    """Divide positions by a number."""
    with changed_frequencies(model, lambda now: now / float(value)):
        yield


@contextmanager
def rope_off(model: nn.Module, _: Any) -> Iterator[None]:
    """Ignore positions."""
    with changed_frequencies(model, torch.zeros_like):
        yield


@contextmanager
def rope_share(model: nn.Module, value: Any) -> Iterator[None]:
    """Rotate only the first share of the dimensions; a negative share turns them backwards."""
    share = float(value)

    def change(now: Tensor) -> Tensor:
        kept = _steps(now) < abs(share) * now.numel()
        return now * kept * (-1 if share < 0 else 1)

    with changed_frequencies(model, change):
        yield


@contextmanager
def rope_precision(model: nn.Module, value: Any) -> Iterator[None]:
    """Round the sines and cosines; with `bfloat16/frequencies` the inverse frequencies."""
    form, _, part = str(value).partition("/")
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[form]
    if part:
        with changed_frequencies(model, lambda kept: kept.to(dtype).to(kept.dtype)):
            yield
        return

    def lowered(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if isinstance(output, Tensor):  # complex numbers, as in Llama 4 and DeepSeek-V2
            return torch.view_as_complex(torch.view_as_real(output).to(dtype).float())
        return tuple(part.to(dtype).to(part.dtype) for part in output)

    modules = {id(module): module for module, _ in rotary_modules(model)}.values()
    handles = [module.register_forward_hook(lowered) for module in modules]
    with until_end(handles):
        yield


QK_NORMS = (
    ("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"), ("query_layernorm", "key_layernorm"),
)  # fmt: skip
"""Names of the norms of queries and keys, by family."""


def qk_norms(model: nn.Module) -> list[tuple[nn.Module, Any, Any]]:
    """Attention modules with their norms of queries and keys."""
    return [
        (module, getattr(module, one), getattr(module, other))
        for module in model.modules()
        for one, other in QK_NORMS
        if isinstance(getattr(module, one, None), nn.Module)
        and isinstance(getattr(module, other, None), nn.Module)
    ]


@contextmanager
def qk_norm_order(model: nn.Module, value: Any) -> Iterator[None]:
    """Normalize queries and keys `after` the rotation instead of before it, or `before` it."""
    layers = qk_norms(model)
    if not layers:
        raise InapplicableError("this model has no norms of queries and keys")
    source = sys.modules[type(layers[0][0]).__module__]
    rotate = source.apply_rotary_pos_emb
    current: list[tuple[Any, Any]] = []

    def turned(query: Tensor, key: Tensor, *rest: Any, **named: Any) -> Any:
        of_query, of_key = current.pop()
        if value == "before":
            return rotate(of_query(query), of_key(key), *rest, **named)
        query, key = rotate(query, key, *rest, **named)
        return of_query(query), of_key(key)

    with ExitStack() as stack:
        for layer, of_query, of_key in layers:
            norms = of_query.forward, of_key.forward
            hook = layer.register_forward_pre_hook(
                lambda _module, _inputs, norms=norms: current.append(norms)
            )
            stack.callback(hook.remove)
            for norm in (of_query, of_key):
                stack.enter_context(mock.patch.object(norm, "forward", lambda x: x))
        stack.enter_context(mock.patch.object(source, "apply_rotary_pos_emb", turned))
        yield


def plain_frequencies(model: nn.Module, base: float) -> Tensor:
    """Frequencies without scaling."""
    steps = _steps(getattr(*rotary_modules(model)[0]))
    return torch.as_tensor(float(base)) ** -(steps / steps.numel())


def rotary_kinds(model: nn.Module) -> list[str]:
    """The kinds of layers with separate rotary positions, such as `sliding_attention`."""
    names = dict.fromkeys(name for _, name in rotary_modules(model))
    return [name.removesuffix("_inv_freq") for name in names] if len(names) > 1 else []


@contextmanager
def layer_rope_base(model: nn.Module, value: Any) -> Iterator[None]:
    """Rotate in one kind of layer with another base and without scaling, `[kind, base]`."""
    kind, base = value
    frequencies = plain_frequencies(model, base)
    with (
        _scaled(model, str(kind), 1.0),
        changed_frequencies(model, lambda _: frequencies, kind=str(kind)),
    ):
        yield


@contextmanager
def layer_rope_scaling(model: nn.Module, value: Any) -> Iterator[None]:
    """Divide the positions of one kind of layer, `[kind, number]`."""
    kind, factor = value
    with changed_frequencies(model, lambda now: now / float(factor), kind=str(kind)):
        yield


@contextmanager
def layer_rope_like(model: nn.Module, value: Any) -> Iterator[None]:
    """Rotate in one kind of layer as in another, `[kind, other]`."""
    kind, other = value
    owners = [m for m in model.modules() if hasattr(m, f"{other}_inv_freq")]
    if not owners or not hasattr(owners[0], f"{kind}_inv_freq"):
        raise InapplicableError(f"this model has no rotary positions of {kind} and {other}")
    frequencies = getattr(owners[0], f"{other}_inv_freq").clone()
    scale = getattr(owners[0], f"{other}_attention_scaling", 1.0)
    with (
        _scaled(model, str(kind), scale),
        changed_frequencies(model, lambda _: frequencies, kind=str(kind)),
    ):
        yield


@contextmanager
def rope_amplitude(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor on sines and cosines, such as the one of yarn, `[kind, factor]`.

    The kind is one of `rotary_kinds`, or `all`.
    """
    kind, factor = value
    prefix = "" if kind == "all" else f"{kind}_"
    found = [
        (module, f"{prefix}attention_scaling")
        for module in {id(module): module for module, _ in rotary_modules(model)}.values()
    ]
    if not all(isinstance(getattr(*each, None), int | float) for each in found) or not found:
        raise InapplicableError("the rotary positions of this model have no factor")
    with ExitStack() as stack:
        for module, name in found:
            changed = getattr(module, name) * float(factor)
            stack.enter_context(mock.patch.object(module, name, changed))
        yield


def amplitude_kinds(model: nn.Module) -> list[str]:
    """The kinds of layers in which such a factor is none on all attention scores."""
    kinds = rotary_kinds(model)
    if kinds:
        return kinds
    sizes = [getattr(module, "head_dim", None) for module in model.modules()]
    sizes += [getattr(module, "qk_head_dim", None) for module in model.modules()]
    widest = max((size for size in sizes if isinstance(size, int)), default=0)
    widths = [2 * getattr(*each).numel() for each in rotary_modules(model)]
    return ["all"] if widths and max(widths) < widest else []


@contextmanager
def _scaled(model: nn.Module, kind: str, scale: float) -> Iterator[None]:
    """Another factor on the sines and cosines of one kind of layer."""
    name = f"{kind}_attention_scaling"
    with ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, scale))
        yield


@contextmanager
def rotary_width(model: Any, value: Any) -> Iterator[None]:
    """Rotate another number of each head's dimensions, with frequencies of that width."""
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    if "rope_theta" not in parameters or not rotary_modules(model):
        raise InapplicableError("this model has no rotary positions with one base")
    width, now = int(value), 2 * getattr(*rotary_modules(model)[0]).numel()
    base = torch.as_tensor(float(parameters["rope_theta"]))
    frequencies = base ** -(torch.arange(width // 2) * 2 / width)
    with ExitStack() as stack:
        for module, name in _widths(model, now):
            stack.enter_context(mock.patch.object(module, name, width))
        stack.enter_context(changed_frequencies(model, lambda _: frequencies, resized=True))
        yield


def _widths(model: nn.Module, now: int) -> list[tuple[nn.Module, str]]:
    """Attributes of modules that hold the number of rotated dimensions."""
    return [
        (module, name)
        for module in model.modules()
        for name, size in vars(module).items()
        if "rot" in name and type(size) is int and size == now
    ]


@contextmanager
def without_alibi(model: Any, _: Any) -> Iterator[None]:
    """No bias by distance in families that build one as a tensor."""
    source = sys.modules[type(model).__module__]
    names = alibi_functions(model)
    if not names:
        raise InapplicableError("this model has no position bias")
    with ExitStack() as stack:
        for name in names:
            built = getattr(source, name)
            stack.enter_context(mock.patch.object(source, name, _zeroed(built)))
        yield


@contextmanager
def alibi_factor(model: Any, value: Any) -> Iterator[None]:
    """A factor on the slopes of the position bias."""
    with _built_otherwise(model, lambda bias: bias * float(value)):
        yield


@contextmanager
def alibi_power(model: Any, value: Any) -> Iterator[None]:
    """Slopes to a power: they are powers of two, whose exponents a setting scales."""

    def change(bias: Tensor) -> Tensor:
        steps = bias.float().abs()
        slopes = torch.where(steps > 0, steps, torch.inf).amin(dim=-1, keepdim=True)
        return bias * slopes.nan_to_num(1.0, posinf=1.0) ** (float(value) - 1)

    with _built_otherwise(model, change):
        yield


@contextmanager
def _built_otherwise(model: Any, change: Any) -> Iterator[None]:
    source = sys.modules[type(model).__module__]
    names = [name for name in alibi_functions(model) if "slopes" not in name]
    if not names:
        raise InapplicableError("this model has no position bias")

    def changed(build: Any) -> Any:
        def built(*arguments: Any, **named: Any) -> Any:
            return change(build(*arguments, **named))

        return built

    with ExitStack() as stack:
        for name in names:
            function = changed(getattr(source, name))
            stack.enter_context(mock.patch.object(source, name, function))
        yield


def _zeroed(build: Any) -> Any:
    def zeros(*arguments: Any, **named: Any) -> Any:
        return torch.zeros_like(build(*arguments, **named))

    return zeros


def alibi_functions(model: Any) -> list[str]:
    """Functions of the family's module that build a position bias."""
    source = sys.modules[type(model).__module__]
    return [name for name, value in vars(source).items() if "alibi" in name and callable(value)]


@contextmanager
def changed_frequencies(
    model: nn.Module, change: Any, *, kind: str = "", resized: bool = False
) -> Iterator[None]:
    """Change the inverse frequencies, of one kind of layer or of all.

    Some scalings choose between two further buffers by the length of the input. These follow.
    """
    buffers = [each for each in rotary_modules(model) if each[1].startswith(kind)]
    if not buffers:
        raise InapplicableError("this model has no rotary positions")
    with ExitStack() as stack:
        for module, name in buffers:
            now = getattr(module, name)
            changed = change(now).to(now)
            if changed.shape != now.shape and not resized:
                raise InapplicableError("this scaling has another number of frequencies")
            for each in (name, *_COMPANIONS):
                path = name.replace("inv_freq", each) if each != name else name
                if isinstance(getattr(module, path, None), Tensor):
                    stack.callback(setattr, module, path, getattr(module, path))
                    setattr(module, path, changed)
        yield


_COMPANIONS = ("original_inv_freq", "long_inv_freq")


def _steps(now: Tensor) -> Tensor:
    return torch.arange(now.numel(), device=now.device, dtype=torch.float32)


@contextmanager
def rope_layout(model: nn.Module, value: Any) -> Iterator[None]:
    """Pair other dimensions: `interleaved` neighbors, or `halves` where the family interleaves.

    `last` rotates the last dimensions of each head where the family rotates the first ones.

    `halves in indexer` acts only in the modules of that name: the indexer of sparse attention
    rotates its own queries and keys.
    """
    layout, _, place = str(value).partition(_IN)
    within = [m for name, m in model.named_modules() if place and name.rpartition(".")[2] == place]
    functions = rotations(model)
    if not functions or (place and not within):
        raise InapplicableError("this model has no rotary positions there")
    width = min((2 * getattr(*each).numel() for each in rotary_modules(model)), default=0)
    with ExitStack() as stack:
        running = _running(within, stack)
        for module, name in functions:
            rotate = getattr(module, name)
            pair = _paired if _takes_pairs(rotate) else _paired_one
            changed = pair(rotate, layout, width)
            if place:
                changed = _while(running, changed, rotate)
            stack.enter_context(mock.patch.object(module, name, changed))
        yield


_IN = " in "


def rope_layouts(model: nn.Module) -> list[str]:
    """The layouts of the whole model, and those of an indexer alone."""
    has_indexer = any(name.endswith(".indexer") for name, _ in model.named_modules())
    places = ("", f"{_IN}indexer") if has_indexer else ("",)
    last = [LAST] if amplitude_kinds(model) == ["all"] else []
    return [layout + place for layout in ("interleaved", "halves") for place in places] + last


def _running(modules: Sequence[nn.Module], stack: ExitStack) -> list[nn.Module]:
    """The modules of these that are computing; the list changes while the model runs."""
    running: list[nn.Module] = []
    for module in modules:
        enter = module.register_forward_pre_hook(lambda own, _inputs: running.append(own))
        leave = module.register_forward_hook(lambda own, _in, _out: running.remove(own))
        stack.callback(enter.remove)
        stack.callback(leave.remove)
    return running


def _while(running: Sequence[nn.Module], changed: Any, plain: Any) -> Any:
    def chosen(*arguments: Any, **named: Any) -> Any:
        return (changed if running else plain)(*arguments, **named)

    return chosen


def _takes_pairs(rotate: Any) -> bool:
    """Whether a function rotates queries and keys together, not one of them."""
    return len(inspect.signature(rotate).parameters) > _ONE_TENSOR


_ONE_TENSOR = 3
"""Parameters of a function that rotates one tensor: the tensor, sines and cosines."""


def rotations(model: nn.Module) -> list[tuple[Any, str]]:
    """The families' functions for rotation: a module of Python, and the name there."""
    sources = {type(module).__module__ for module in model.modules()}
    return [
        (sys.modules[source], name)
        for source in sources
        for name in vars(sys.modules[source])
        if name.startswith("apply_rotary_pos_emb")
    ]


def _paired_one(rotate: Any, layout: str, _width: int) -> Any:
    """The same for a function of one tensor, all of whose dimensions are rotated."""
    if layout == LAST:
        raise InapplicableError("all dimensions that this function reads are rotated")

    def rotated(x: Tensor, *rest: Any, **named: Any) -> Any:
        half = x.shape[-1] // 2
        order = torch.arange(2 * half, device=x.device).view(half, 2).T.flatten()
        if layout == "halves":
            order = order.argsort()
        return rotate(x[..., order], *rest, **named)[..., order.argsort()]

    return rotated


def _paired(rotate: Any, layout: str, width: int) -> Any:
    """The rotation of the first `width` dimensions of each head in another order."""

    def rotated(query: Tensor, key: Tensor, cos: Tensor, *rest: Any, **named: Any) -> Any:
        size = query.shape[-1]
        half = min(width or size, size) // 2
        order = _order(2 * half, size, layout).to(query.device)
        back = order.argsort()
        turned = rotate(query[..., order], key[..., order], cos, *rest, **named)
        return tuple(each[..., back] for each in turned)

    return rotated


def _order(width: int, size: int, layout: str) -> Tensor:
    """The dimensions of a head in the order in which the first ones are rotated."""
    if layout == LAST:
        return torch.arange(size).roll(width)
    order = torch.arange(width).view(width // 2, 2).T.flatten()
    return torch.cat([order.argsort() if layout == "halves" else order, torch.arange(width, size)])


LAST = "last"
