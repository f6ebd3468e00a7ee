"""Large generic changes of places: outputs and inputs times factors, or of the position before.

A fault of any kind often has something in common with one of them, also where its effect is too
large for gradients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.localisation.places import EMBEDDING, HEAD, Place, read_input, tensor_of
from hf.what_if.attention import AttentionEdits, edited_attention

_ATTENDS = re.compile(r"attn|attention", re.IGNORECASE)
Change = Callable[[Tensor, Tensor], Tensor]
"""From a module's output and input, both (B, L, D), to another output."""


def _before(values: Tensor) -> Tensor:
    """The values of the position before."""
    return torch.cat([torch.zeros_like(values[:, :1]), values[:, :-1]], dim=1)


def _by_size(output: Tensor, read: Tensor) -> Tensor:
    """More at positions with a large input, as another epsilon of a norm has."""
    sizes = read.float().pow(2).mean(-1, keepdim=True).sqrt().clamp(min=1e-9)
    return output * (sizes / sizes.mean()).sqrt().to(output.dtype)


def _rising(output: Tensor, _read: Tensor) -> Tensor:
    """More at later positions."""
    count = output.shape[1]
    share_L = torch.arange(count, device=output.device) / max(count - 1, 1)
    return output * share_L.view(1, -1, *[1] * (output.ndim - 2)).to(output.dtype)


_OUTPUTS: dict[str, Change] = {
    "nothing": lambda output, _: output * 0,
    "less": lambda output, _: output * 0.6,
    "more": lambda output, _: output * 1.4,
    "before": lambda output, _: _before(output),
    "rising": _rising,
}
_INPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "less input": lambda read: read * 0.6,
    "more input": lambda read: read * 1.6,
    "centered input": lambda read: read - read.mean(-1, keepdim=True),
}
_NORM_OUTPUTS: dict[str, Change] = {
    "less": _OUTPUTS["less"],
    "more": _OUTPUTS["more"],
    "by size": _by_size,
}
_EMBEDDINGS: dict[str, Change] = {name: _OUTPUTS[name] for name in ("less", "more", "before")}
_LOGITS: dict[str, Change] = {
    "less": _OUTPUTS["less"],
    "more": _OUTPUTS["more"],
    "saturated": lambda output, _: output.std() * 1.5 * torch.tanh(output / (output.std() * 1.5)),
}
_ATTENTION: dict[str, dict[str, Any]] = {
    **{f"window {width}": {"window": width} for width in (4, 8, 16, 32, 64)},
    "weaker scores": {"attention_scale": 0.6},
    "stronger scores": {"attention_scale": 1.6},
    "saturated scores": {"attention_soft_cap": 3.0},
    "nearer": {"distance_bias": 0.1},
    "farther": {"distance_bias": -0.1},
}
_FAILURES = (InapplicableError, RuntimeError, TypeError, ValueError, AttributeError, KeyError)
"""What a change raises that does not fit a family."""


def effects(
    model: Any, places: Sequence[Place], run: Callable[[], Tensor], *, norms: bool = False
) -> dict[str, Tensor]:
    """What each change of some places together does to the log-probabilities, by its name.

    Args:
        model: that is changed.
        places: of one kind.
        run: one forward pass; returns the log-probabilities of all tokens, (N,).
        norms: whether the norms of the places are changed, instead of their blocks.
    """
    base_N = run()
    found: dict[str, Tensor] = {}
    for name, change in _changes(model, places, norms=norms):
        try:
            with change:
                moved_N = run() - base_N
        except _FAILURES as error:
            print(f"{name} in {places[0].kind}: {str(error)[:80]}", flush=True)
            continue
        if bool(moved_N.abs().max() > 0):
            found[name] = moved_N
    return found


def _changes(model: Any, places: Sequence[Place], *, norms: bool) -> Iterator[tuple[str, Any]]:
    blocks = [place.block for place in places]
    if norms:
        scaling = [module for place in places for module in place.norms.values()]
        yield from ((name, _outputs(scaling, change)) for name, change in _NORM_OUTPUTS.items())
        centered = _INPUTS["centered input"]
        yield "centered input", _inputs(scaling, centered)
        return
    outputs = {EMBEDDING: _EMBEDDINGS, HEAD: _LOGITS}.get(places[0].name, _OUTPUTS)
    yield from ((name, _outputs(blocks, change)) for name, change in outputs.items())
    if places[0].layer is None:
        return
    yield from ((name, _inputs(blocks, change)) for name, change in _INPUTS.items())
    if _ATTENDS.search(places[0].kind) and len(places) > 1:
        for name, edit in _ATTENTION.items():
            yield name, edited_attention(model, AttentionEdits(**edit))


@contextmanager
def _outputs(modules: Sequence[nn.Module], change: Change) -> Iterator[None]:
    def hook(_module: Any, arguments: Any, named: Any, output: Any) -> Any:
        made, read = tensor_of(output), read_input(arguments, named)
        if made is None or made.ndim < 3:
            raise InapplicableError("its output has another shape")
        fits = read is not None and read.shape[:2] == made.shape[:2]
        changed = change(made, read if fits and read is not None else made)
        return _with_tensor(output, made, changed)

    with ExitStack() as stack:
        for module in modules:
            handle = module.register_forward_hook(hook, with_kwargs=True)
            stack.callback(handle.remove)
        yield


@contextmanager
def _inputs(modules: Sequence[nn.Module], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    def hook(_module: Any, arguments: Any, named: Any) -> Any:
        read = read_input(arguments, named)
        if read is None or read.ndim < 3:
            raise InapplicableError("its input has another shape")
        changed = change(read)
        given = tuple(changed if each is read else each for each in arguments)
        return given, {n: changed if each is read else each for n, each in named.items()}

    with ExitStack() as stack:
        for module in modules:
            handle = module.register_forward_pre_hook(hook, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def _with_tensor(output: Any, old: Tensor, new: Tensor) -> Any:
    """A module's output with another tensor in place of its first one."""
    if output is old:
        return new
    if isinstance(output, tuple):
        return tuple(new if each is old else each for each in output)
    raise InapplicableError("its output has another form")
