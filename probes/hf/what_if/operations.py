"""The operations of a forward pass, as a graph whose nodes other edits change.

A `Trace` sees each call of a torch function that returns floating-point values, with the module
that makes it. The number of the call within its module names the same operation in every pass and
in every layer of one kind: `mlp#2:mul` is the third call of the module `mlp` of each layer,
`1:mlp#2:mul` that of layer 1, `^model#4:mul` one outside of the layers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hf.localisation.places import read_input
from hf.what_if.modules import layers

_MOST_CALLS = 160
"""Calls of one module that are followed: a recurrence makes some for each token."""
_SITE = re.compile(r"(?:(\d+):)?(\^?[\w.]*)#(\d+|\*):(\w+)")
OUTSIDE = "^"
EVERY = -1
"""The number of a site that means every call of its name."""


@dataclass(frozen=True)
class Site:
    """An operation of all layers, of one, or outside of them."""

    layer: int | None
    path: str
    number: int
    name: str

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"{self.layer}:"
        return f"{layer}{self.path}#{'*' if self.number == EVERY else self.number}:{self.name}"

    @classmethod
    def of(cls, text: str) -> Site:
        """The site of its name.

        Raises:
            InapplicableError: if it is no name of a site.
        """
        match = _SITE.fullmatch(text)
        if match is None:
            raise InapplicableError(f"{text!r} names no operation")
        layer, path, number, name = match.groups()
        at = EVERY if number == "*" else int(number)
        return cls(None if layer is None else int(layer), path, at, name)

    @property
    def anywhere(self) -> Site:
        """The same in all layers."""
        return Site(None, self.path, self.number, self.name)

    def includes(self, other: Site) -> bool:
        """Whether a call at another site is one of this."""
        return (
            self.path == other.path
            and self.number in (EVERY, other.number)
            and self.name == other.name
            and self.layer in (None, other.layer)
        )


@dataclass
class Call:
    """One call of a torch function."""

    site: Site
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    output: Any
    """As later calls read it."""

    @property
    def operands(self) -> list[Tensor]:
        """The floating-point tensors among its arguments, in order."""
        return [one for one in _leaves((self.arguments, dict(self.named))) if is_float(one)]

    @property
    def outputs(self) -> list[Tensor]:
        """The floating-point tensors that it returns."""
        return [one for one in _leaves(self.output) if is_float(one)]

    def again(self, replaced: Mapping[int, Tensor]) -> Any:
        """The function with other tensors in place of some, which are given by `id`."""

        def put(value: Any) -> Any:
            if isinstance(value, Tensor):
                return replaced.get(id(value), value)
            if isinstance(value, list | tuple):
                return type(value)(map(put, value))
            return value

        named = {name: put(value) for name, value in self.named.items()}
        return self.function(*map(put, self.arguments), **named)

    def with_operands(self, others: Mapping[int, Tensor]) -> Any:
        """The function with other operands, by their number: one tensor may be two of them."""
        numbers = iter(range(len(self.operands)))

        def put(value: Any) -> Any:
            if isinstance(value, Tensor):
                return others.get(next(numbers), value) if is_float(value) else value
            if isinstance(value, list | tuple):
                return type(value)(map(put, value))
            return value

        arguments = [put(value) for value in self.arguments]
        named = {name: put(value) for name, value in self.named.items()}
        return self.function(*arguments, **named)


Change = Callable[[Call, "Trace"], Any]
"""From a call, and those before it, to another output."""


class Trace(TorchFunctionMode):
    """Follows the calls of a model's forward passes, and changes the outputs of some.

    Args:
        model: a causal language model.
        change: of each call; None for none.
        keeps: whether all calls of a pass are kept; otherwise those of two layers.
    """

    def __init__(self, model: nn.Module, change: Change | None = None, *, keeps: bool) -> None:
        super().__init__()
        self._change, self._keeps = change, keeps
        self._scopes = dict(_scopes(model))
        self._stack: list[tuple[int | None, str] | None] = []
        self._counts: Counter[tuple[int | None, str]] = Counter()
        self.calls: dict[int | None, dict[tuple[str, int], Call]] = {}
        """By layer, by module and number, in order."""
        self.read: dict[int | None, Tensor] = {}
        """What each layer reads."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, and keep or change it."""
        output = func(*args, **(kwargs or {}))
        scope = self._stack[-1] if self._stack else None
        name = func.__name__.strip("_") if hasattr(func, "__name__") else ""
        if scope is None or name in ("get", "") or not _has_floats(output):
            return output
        number = self._counts[scope]
        self._counts[scope] += 1
        if number >= _MOST_CALLS:
            return output
        in_place = "_" if func.__name__.endswith("_") and not func.__name__.startswith("_") else ""
        site = Site(scope[0], scope[1], number, name + in_place)
        call = Call(site, func, tuple(args), kwargs or {}, output)
        self.calls.setdefault(scope[0], {})[scope[1], number] = call
        if self._change is not None:
            # Another trace, of a second edit, must not count what the change calls.
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - no public name
                call.output = self._change(call, self)
        return call.output

    @contextmanager
    def following(self) -> Iterator[Trace]:
        """Follow the passes inside the block."""
        with ExitStack() as stack:
            for module in self._scopes:
                for handle in (
                    module.register_forward_pre_hook(self._enter, with_kwargs=True),
                    module.register_forward_hook(self._leave),
                ):
                    stack.callback(handle.remove)
            stack.enter_context(self)
            yield self

    def _enter(self, module: nn.Module, arguments: Any, named: Any) -> None:
        if not self._stack:
            self._counts.clear()
            if not self._keeps:
                self.calls.clear()
                self.read.clear()
        scope = self._scopes[module]
        if scope is not None and scope[0] is not None and not scope[1]:
            given = read_input(arguments, named)
            if given is not None:
                self.read[scope[0]] = given
            if not self._keeps:
                self.calls.pop(scope[0] - 2, None)
        self._stack.append(scope)

    def _leave(self, _module: nn.Module, _arguments: Any, _output: Any) -> None:
        if self._stack:
            self._stack.pop()

    def source(self, layer: int | None, text: str) -> Tensor:
        """A tensor of this pass, as a layer names it.

        `mlp#2:mul` is one of the same layer, `<mlp#2:mul` of the layer before, `layer` what the
        layer reads, `^…` one outside of the layers.

        Raises:
            InapplicableError: if there is none.
        """
        before = text.startswith("<")
        text = text.removeprefix("<")
        if before and layer is not None:
            layer -= 1
        if text == LAYER:
            found = self.read.get(layer)
        else:
            site = Site.of(text)
            at = None if site.path.startswith(OUTSIDE) else layer
            call = self.calls.get(at, {}).get((site.path, site.number))
            is_same = call is not None and call.site.name == site.name
            found = call.output if call is not None and is_same else None
        if not isinstance(found, Tensor):
            raise InapplicableError(f"there is no {text}")
        return found

    def in_module(self, call: Call) -> list[Call]:
        """The calls of the same module up to a call, in order."""
        calls = self.calls.get(call.site.layer, {})
        keys = ((call.site.path, number) for number in range(call.site.number + 1))
        return [calls[key] for key in keys if key in calls]


LAYER = "layer"


def is_float(value: Any) -> bool:
    """Whether a value is a floating-point tensor."""
    return isinstance(value, Tensor) and value.is_floating_point()


def _has_floats(output: Any) -> bool:
    if isinstance(output, Tensor):
        return output.is_floating_point()
    return isinstance(output, tuple | list) and any(map(is_float, output))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        parts: Iterable[Any] = value
    elif isinstance(value, dict):
        parts = value.values()
    else:
        yield value
        return
    for part in parts:
        yield from _leaves(part)


def _scopes(model: nn.Module) -> Iterator[tuple[nn.Module, tuple[int | None, str] | None]]:
    """Each module with its layer and name; None for modules of a list, such as single experts."""
    stack = layers(model)
    inside: dict[int, tuple[int | None, str] | None] = {}
    for number, layer in enumerate(stack):
        for name, module in layer.named_modules():
            inside[id(module)] = None if re.search(r"(^|\.)\d+(\.|$)", name) else (number, name)
    for name, module in model.named_modules():
        if module is not stack:
            yield module, inside.get(id(module), (None, OUTSIDE + name))
