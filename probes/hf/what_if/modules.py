"""Edits of single modules: norms, biases, activations, layers, embeddings, the output head."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

import torch
from contract import InapplicableError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hf.hooks import until_end

EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")
_PLAIN = bool | int | float


def norms(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Normalization layers, by name."""
    return [
        (name, module)
        for name, module in model.named_modules()
        if "norm" in type(module).__name__.lower() and any(hasattr(module, e) for e in EPSILONS)
    ]


def layers(model: nn.Module) -> nn.ModuleList:
    """The list of decoder layers: the longest list that is not inside another.

    Raises:
        InapplicableError: if there is none.
    """
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and not re.search(r"\.\d+\.", f".{name}.")
    ]
    if not lists:
        raise InapplicableError("this model has no list of layers")
    return max(lists, key=lambda pair: len(pair[1]))[1]


def activations(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """Each activation function: its parent and its name there."""
    from transformers.activations import ACT2FN

    kinds = {type(ACT2FN[name]) for name in ("silu", "gelu", "relu", "gelu_new", "relu2")}
    kinds |= {type(ACT2FN[name]) for name in ("gelu_pytorch_tanh", "quick_gelu", "gelu_fast")}
    return [
        (module, name)
        for module in model.modules()
        for name, child in module.named_children()
        if type(child) in kinds
    ]


def biases(model: nn.Module) -> dict[str, list[Tensor]]:
    """Biases by the last part of their module's name."""
    found: dict[str, list[Tensor]] = {}
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        parent, _, last = name.rpartition(".")
        if last == "bias":
            found.setdefault(parent.rpartition(".")[2], []).append(weight)
        elif last.endswith("correction_bias"):  # of a router's choice; a buffer in most families
            found.setdefault(last, []).append(weight)
    return found


@contextmanager
def norm_epsilon(model: nn.Module, value: Any) -> Iterator[None]:
    """Another epsilon in all norms."""
    with ExitStack() as stack:
        for _, module in norms(model):
            for name in EPSILONS:
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, float(value)))
        yield


@contextmanager
def norm_offset(model: nn.Module, value: Any) -> Iterator[None]:
    """Add a number to the weights of all norms."""
    weights = [w for _, module in norms(model) for w in module.parameters(recurse=False)]
    scales = [
        w for w in weights if not any(w is b for each in biases(model).values() for b in each)
    ]
    with replaced(scales, lambda weight: weight + float(value)):
        yield


@contextmanager
def without_norm(model: nn.Module, value: Any) -> Iterator[None]:
    """Skip the norms of these names, separated by commas."""
    names = str(value).split(",")
    chosen = [module for name, module in norms(model) if name.rpartition(".")[2] in names]
    if not chosen:
        raise InapplicableError(f"this model has no norm {value}")
    with hooked(chosen, lambda _module, inputs, _output: inputs[0]):
        yield


def wide_norms(model: nn.Module) -> dict[str, list[tuple[nn.Module, int]]]:
    """Norms over all heads at once, by name, with their numbers of heads."""
    found: dict[str, list[tuple[nn.Module, int]]] = {}
    for parent in model.modules():
        size = getattr(parent, "head_dim", None)
        for name, module in parent.named_children():
            weight = getattr(module, "weight", None)
            if not isinstance(size, int) or weight is None or not name.endswith("norm"):
                continue
            if weight.numel() > size and weight.numel() % size == 0:
                found.setdefault(name, []).append((module, weight.numel() // size))
    return found


@contextmanager
def norm_parts(model: nn.Module, value: Any) -> Iterator[None]:
    """Norms over all heads are taken over this number of parts, as tensor parallelism may do."""
    parts = int(value)

    def split(module: Any, inputs: Any, output: Tensor) -> Tensor:
        eps = next(float(getattr(module, e)) for e in EPSILONS if hasattr(module, e))
        whole, width = inputs[0].float(), inputs[0].shape[-1]
        if width % parts:
            raise InapplicableError(f"the width of a norm is no multiple of {parts}")
        shape = (*whole.shape[:-1], parts, width // parts)
        squares = whole.view(shape).pow(2).mean(-1, keepdim=True)
        ratio = torch.rsqrt(squares + eps) / torch.rsqrt(squares.mean(-2, keepdim=True) + eps)
        changed: Tensor = (output.float().view(shape) * ratio).view(whole.shape)
        return changed.to(output.dtype)

    chosen = [module for each in wide_norms(model).values() for module, _ in each]
    if not chosen:
        raise InapplicableError("this model has no norm over all heads")
    with hooked(chosen, split):
        yield


def gates(model: nn.Module) -> list[str]:
    """Names of linear layers with one output, which gate another part by a sigmoid."""
    named = ((path.rpartition(".")[2], module) for path, module in model.named_modules())
    return sorted(
        {
            name
            for name, module in named
            if isinstance(module, nn.Linear) and module.out_features == 1 and "gate" in name
        }
    )


def gated_blocks(model: nn.Module) -> list[str]:
    """Names of attention blocks that multiply their output by a sigmoid of a part of a projection.

    Such a gate is no separate module.
    """
    named = {
        path.rpartition(".")[2]: module
        for layer in layers(model)
        for path, module in layer.named_modules()
        if re.search(r"attn|attention", path.rpartition(".")[2])
    }
    return [name for name, module in named.items() if _calls_sigmoid(type(module).forward)]


def _calls_sigmoid(function: Any) -> bool:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is not None and "sigmoid" in code.co_names


class _OpenSigmoid(TorchFunctionMode):
    """Every sigmoid is 1."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SIGMOIDS:
            return torch.ones_like(args[0])
        return func(*args, **(kwargs or {}))


SIGMOIDS = (torch.sigmoid, Tensor.sigmoid, nn.functional.sigmoid)
"""The forms in which a family's code calls it."""


@contextmanager
def open_gate(model: nn.Module, value: Any) -> Iterator[None]:
    """Every sigmoid in the forward pass of the blocks with this name is 1."""
    chosen = [m for path, m in model.named_modules() if path.rpartition(".")[2] == value]
    if not chosen:
        raise InapplicableError(f"this model has no block {value}")

    def opened(run: Any) -> Any:
        def forward(*arguments: Any, **named: Any) -> Any:
            with _OpenSigmoid():
                return run(*arguments, **named)

        return forward

    with ExitStack() as stack:
        for module in chosen:
            stack.enter_context(mock.patch.object(module, "forward", opened(module.forward)))
        yield


@contextmanager
def residual_rounding(model: nn.Module, value: Any) -> Iterator[None]:
    """The hidden states between layers in 16 bits."""
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[str(value)]

    def lowered(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0].to(dtype).to(output[0].dtype), *output[1:])
        return output.to(dtype).to(output.dtype)

    with hooked(list(layers(model)), lowered):
        yield


@contextmanager
def without_gate(model: nn.Module, value: Any) -> Iterator[None]:
    """Leave the gates with this name fully open."""
    chosen = [m for path, m in model.named_modules() if path.rpartition(".")[2] == value]
    if not chosen:
        raise InapplicableError(f"this model has no gate {value}")
    with hooked(chosen, lambda _module, _inputs, output: torch.full_like(output, _OPEN)):
        yield


_OPEN = 100.0
"""Its sigmoid is 1 in every precision."""


@contextmanager
def without_bias(model: nn.Module, value: Any) -> Iterator[None]:
    """Set the biases of these modules to zero."""
    known = biases(model)
    chosen = [weight for name in str(value).split(",") for weight in known.get(name, ())]
    if not chosen:
        raise InapplicableError(f"this model has no bias in {value}")
    with replaced(chosen, torch.zeros_like):
        yield


@contextmanager
def activation(model: nn.Module, value: Any) -> Iterator[None]:
    """Another activation function everywhere."""
    from transformers.activations import ACT2FN

    with ExitStack() as stack:
        for module, name in activations(model):
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, ACT2FN[str(value)])
        yield


def function_names(model: Any) -> dict[str, list[str | None]]:
    """Attributes that name an activation function, with the other names: a kernel may get it.

    None: the kernel applies no function.
    """
    from transformers.activations import ACT2FN

    found: dict[str, list[str | None]] = {}
    for owner in owners_of(model):
        for name, value in vars(owner).items():
            if isinstance(value, str) and value in ACT2FN and not name.startswith("_"):
                found[name] = [None, *(each for each in _FUNCTIONS if each != value)]
    return found


_FUNCTIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "tanh", "sigmoid")


@contextmanager
def function_name(model: Any, value: Any) -> Iterator[None]:
    """Another name of an activation function, `[attribute, name or None]`."""
    name, wanted = value
    owners = [owner for owner in owners_of(model) if isinstance(_plain(owner, name), str)]
    if not owners:
        raise InapplicableError(f"this model has no function {name}")
    before = [(owner, getattr(owner, name)) for owner in owners]
    try:
        for owner, _ in before:
            _put(owner, name, wanted)
        yield
    finally:
        for owner, now in before:
            _put(owner, name, now)


def _put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute; a configuration that validates its fields keeps a value it refuses."""
    with suppress(Exception):
        setattr(owner, name, value)


@contextmanager
def missing_layer(model: nn.Module, value: Any) -> Iterator[None]:
    """Skip one layer."""

    def passed(_module: nn.Module, inputs: Any, named: Any, output: Any) -> Any:
        hidden = inputs[0] if inputs else named["hidden_states"]
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    hook = layers(model)[int(value)].register_forward_hook(passed, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def embedding_scale(model: Any, value: Any) -> Iterator[None]:
    """A factor on the embeddings."""
    embeddings = model.get_input_embeddings()
    with hooked([embeddings], lambda _module, _inputs, output: output * float(value)):
        yield


def has_own_head(model: Any) -> bool:
    """Whether the output head has weights of its own, of the shape of the embeddings."""
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    one, other = getattr(head, "weight", None), getattr(embeddings, "weight", None)
    return (
        isinstance(one, Tensor)
        and isinstance(other, Tensor)
        and one.shape == other.shape
        and one.data_ptr() != other.data_ptr()
    )


@contextmanager
def tied_head(model: Any, _: Any) -> Iterator[None]:
    """The embeddings are the output head, whose own weights are ignored."""
    if not has_own_head(model):
        raise InapplicableError("this model has no separate output head")
    embeddings = model.get_input_embeddings().weight.data
    with replaced([model.get_output_embeddings().weight], lambda _weight: embeddings):
        yield


@contextmanager
def logit_soft_cap(model: Any, value: Any) -> Iterator[None]:
    """A soft-cap of the logits."""
    cap = float(value)
    head = model.get_output_embeddings()
    with hooked([head], lambda _module, _inputs, output: torch.tanh(output / cap) * cap):
        yield


def logit_caps(model: Any) -> list[tuple[Any, str]]:
    """The settings that soft-cap logits: their owners and names."""
    return [
        (owner, name)
        for owner in owners_of(model)
        for name, value in vars(owner).items()
        if isinstance(value, float) and value > 0 and re.search(r"(final|logit).*cap", name)
        and "att" not in name
    ]  # fmt: skip


@contextmanager
def logit_cap_product(model: Any, value: Any) -> Iterator[None]:
    """Logits times the hyperbolic tangent of logits / cap: a cap that lacks its factor."""
    cap, head = float(value), model.get_output_embeddings()
    before = [(owner, name, getattr(owner, name)) for owner, name in logit_caps(model)]
    try:
        for owner, name, _ in before:
            setattr(owner, name, None)
        with hooked([head], lambda _m, _inputs, output: output * torch.tanh(output / cap)):
            yield
    finally:
        for owner, name, now in before:
            setattr(owner, name, now)


@contextmanager
def logit_clamp(model: Any, value: Any) -> Iterator[None]:
    """A bound on the size of logits."""
    most = float(value)
    head = model.get_output_embeddings()
    with hooked([head], lambda _module, _inputs, output: output.clamp(-most, most)):
        yield


@contextmanager
def logit_rounding(model: Any, value: Any) -> Iterator[None]:
    """Logits in another precision; `bfloat16/inputs` computes the output head in it."""
    form, _, part = str(value).partition("/")
    dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[form]

    def lowered(module: Any, inputs: Any, output: Tensor) -> Tensor:
        if part:
            bias = getattr(module, "bias", None)
            bias = None if bias is None else bias.to(dtype)
            output = nn.functional.linear(inputs[0].to(dtype), module.weight.to(dtype), bias)
        return output.to(dtype).float()

    with hooked([model.get_output_embeddings()], lowered):
        yield


def blocks(model: nn.Module) -> list[str]:
    """Names of the parts of decoder layers that add to the hidden states."""
    parts = {name for layer in layers(model) for name, _ in layer.named_children()}
    parts |= {name.rpartition(".")[2] for name, _ in model.named_modules() if "shared_exp" in name}
    return sorted(part for part in parts if re.search(_BLOCKS, part))


_BLOCKS = r"attn|attention|mlp|moe|feed_forward|shared_experts?$"


@contextmanager
def output_scale(model: nn.Module, value: Any) -> Iterator[None]:
    """A factor on the output of all parts with a name, `[name, factor]`."""
    name, factor = value
    chosen = [part for path, part in model.named_modules() if path.rpartition(".")[2] == name]
    if not chosen:
        raise InapplicableError(f"this model has no part {name}")
    with hooked(chosen, times(float(factor))):
        yield


def times(factor: float) -> Callable[[nn.Module, Any, Any], Any]:
    """A hook that multiplies a module's output, or the first of its outputs."""

    def scaled(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0] * factor, *output[1:])
        return output * factor

    return scaled


@contextmanager
def setting(model: Any, value: Any) -> Iterator[None]:
    """Set an attribute, `[name, value]`, in the configuration and in every module that has it.

    `limits[0]` is the first of a pair of numbers.
    """
    name, wanted = value
    name, _, place = str(name).removesuffix("]").partition("[")
    kinds = tuple | list if place else _PLAIN
    owners = [owner for owner in owners_of(model) if isinstance(_plain(owner, name), kinds)]
    if not owners:
        raise InapplicableError(f"this model has no setting {name}")
    before = [(owner, getattr(owner, name)) for owner in owners]
    try:
        for owner, now in before:
            setattr(owner, name, _with_item(now, int(place), wanted) if place else wanted)
        yield
    finally:
        for owner, now in before:
            setattr(owner, name, now)


def _with_item(pair: Any, place: int, wanted: Any) -> Any:
    return type(pair)(wanted if n == place else item for n, item in enumerate(pair))


def owners_of(model: Any) -> list[Any]:
    """The objects whose attributes are settings: the text model's configuration, and modules.

    Without torch's own modules, whose attributes are shapes and options of layers.
    """
    own = [m for m in model.modules() if not type(m).__module__.startswith("torch.")]
    return [model.config.get_text_config(), *own]


def _plain(owner: Any, name: str) -> Any:
    """An attribute set on an object itself, or None."""
    return vars(owner).get(name)


@contextmanager
def replaced(weights: list[nn.Parameter] | list[Tensor], change: Any) -> Iterator[None]:
    """Weights with other values; two parameters that share memory stay equal."""
    unique = list({id(weight): weight for weight in weights}.values())
    before = [weight.data for weight in unique]
    try:
        for weight in unique:
            weight.data = change(weight.data)
        yield
    finally:
        for weight, now in zip(unique, before, strict=True):
            weight.data = now


@contextmanager
def hooked(modules: list[nn.Module], hook: Any) -> Iterator[None]:
    """Call a hook after these modules."""
    handles = [module.register_forward_hook(hook) for module in modules]
    with until_end(handles):
        yield
