"""Generic edits of the graph of a model's operations: other operands, order, axes, repetitions.

An edit is a site and a form, `["mlp#3:mul", "operand 0 from mlp#1:linear"]`:

- `from SOURCE`: the operation's output is replaced by another tensor of the same shape
- `skipped`: by its first operand
- `operand 1 from SOURCE`, `operands 1,2 before`: an operand is another tensor, or those of the same
  operation in the layer before
- `later gelu of 0`: the operation that computed operand 0 is applied after this one, not before
- `twice KIND of MODULE from SOURCE`: the steps that lead from a tensor to this operation, a
  `rotation` or another `function`, are applied twice; MODULE is where the tensor comes from
- `exchanged 1,2`: two of its outputs exchanged
- `axes`: two axes are merged, or one is divided, in the other order
- `last`, `first`: a sum over an axis is its last or first element
- `overwrites`: values are written where others are added
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.operations import EVERY, LAYER, OUTSIDE, Call, Site, Trace, is_float

VIEWS = frozenset(
    {
        "view", "reshape", "transpose", "permute", "contiguous", "to", "float", "type", "unsqueeze",
        "squeeze", "expand", "getitem", "chunk", "split", "unbind", "flatten", "unflatten",
        "type_as", "detach", "dropout", "clone", "expand_as", "narrow", "half", "bfloat16",
    }
)  # fmt: skip
"""Operations that compute nothing."""
_MERGING = frozenset({"view", "reshape", "flatten", "unflatten"})
_ADDING = frozenset({"index_add_", "scatter_add_", "index_add", "scatter_add"})
_LONGEST = 24
"""Operations between the ends of a part that is repeated."""


@contextmanager
def operation(model: nn.Module, value: Any) -> Iterator[None]:
    """Compute with another operation, `[site, form]`.

    Raises:
        InapplicableError: if the model has no such operation, also when it runs.
    """
    site, form = Site.of(str(value[0])), str(value[1])
    met = False

    def change(call: Call, trace: Trace) -> Any:
        nonlocal met
        if not site.includes(call.site):
            return call.output
        new = changed(call, trace, form)
        if new is None:
            return call.output
        met = True
        return new

    with Trace(model, change, keeps=False).following():
        yield
    if not met:
        raise InapplicableError(f"this model has no operation {site}")


def changed(call: Call, trace: Trace, form: str) -> Any:
    """Another output of a call; None in a first layer without one before.

    Raises:
        InapplicableError: if the form does not fit.
    """
    kind, _, rest = form.partition(" ")
    layer = call.site.layer
    needs_before = "<" in form or form.endswith(" before")
    if needs_before and (layer is None or layer - 1 not in trace.calls):
        return None
    if kind not in _FORMS:
        raise InapplicableError(f"there is no form {form!r}")
    return _FORMS[kind](call, trace, rest or kind)


def _replaced(call: Call, trace: Trace, source: str) -> Tensor:
    return _fitting(trace.source(call.site.layer, source), call.output)


def _with_operand(call: Call, trace: Trace, rest: str) -> Any:
    number, _, source = rest.partition(" from ")
    old = call.operands[int(number)]
    new = _fitting(trace.source(call.site.layer, source), old)
    return call.with_operands({int(number): new})


def _of_layer_before(call: Call, trace: Trace, rest: str) -> Any:
    numbers = [int(one) for one in rest.split(" ", maxsplit=1)[0].split(",")]
    before = trace.calls[(call.site.layer or 0) - 1].get((call.site.path, call.site.number))
    if before is None or before.site.name != call.site.name:
        raise InapplicableError("the layer before has no such operation")
    others = before.operands
    return call.with_operands({n: _fitting(others[n], call.operands[n]) for n in numbers})


def _exchanged(call: Call, _: Trace, rest: str) -> tuple[Any, ...]:
    one, two = map(int, rest.split(","))
    outputs = list(call.output)
    outputs[one], outputs[two] = outputs[two], outputs[one]
    return tuple(outputs)


def _fitting(new: Tensor, old: Any) -> Tensor:
    if not isinstance(old, Tensor) or new.shape != old.shape or new.dtype != old.dtype:
        raise InapplicableError("the other tensor has another shape")
    return new


def _skipped(call: Call, _trace: Trace, _rest: str) -> Tensor:
    return _fitting(call.operands[0], call.output)


def _swapped(call: Call, trace: Trace, rest: str) -> Tensor:
    """The operation before an operand, applied to this operation's output instead."""
    name, _, at = rest.partition(" of ")
    number = int(at)
    operand = call.operands[number]
    inner = producer(trace, call, operand)
    if inner is None or inner.site.name != name:
        raise InapplicableError(f"the operand is not what {name} returned")
    outer = call.with_operands({number: _fitting(inner.operands[0], operand)})
    result = inner.with_operands({0: _fitting(outer, inner.operands[0])})
    return _fitting(result, call.output)


def _repeated(call: Call, trace: Trace, rest: str) -> Tensor:
    """The steps from a tensor to this operation once more, from its output on."""
    start = trace.source(call.site.layer, rest.rpartition(" from ")[2])
    known: dict[int, Tensor] = {id(start): call.output}
    steps = trace.in_module(call)
    first = next((n for n, one in enumerate(steps) if one.output is start), 0)
    for step in steps[max(first + 1, len(steps) - _LONGEST) :]:
        if any(id(operand) in known for operand in step.operands):
            new = step.again(known)
            if isinstance(new, Tensor):
                known[id(step.output)] = new
            elif isinstance(new, tuple | list):
                known |= {
                    id(old): one for old, one in zip(step.output, new, strict=True) if is_float(one)
                }
    result = known.get(id(call.output))
    if result is None or id(call.output) == id(start):
        raise InapplicableError("this operation does not depend on it")
    return _fitting(result, call.output)


def _other_axes(call: Call, _trace: Trace, _rest: str) -> Tensor:
    given, made = call.operands[0], call.output
    if merges(call):
        merged: Tensor = given.transpose(-1, -2).reshape(made.shape)
        return merged
    if divides(call):
        shape = (*made.shape[:-2], made.shape[-1], made.shape[-2])
        return given.reshape(shape).transpose(-1, -2)
    raise InapplicableError("it neither merges nor divides axes")


def _one_of_sum(call: Call, _: Trace, which: str) -> Tensor:
    given, axis = call.operands[0], _axis_of(call)
    if axis is None:
        raise InapplicableError("it is no sum over one axis")
    one = given.select(axis, -1 if which == "last" else 0)
    return _fitting(one.reshape(call.output.shape), call.output)


def _overwritten(call: Call, _trace: Trace, _rest: str) -> Tensor:
    """An addition in place is done already; the same places are overwritten then."""
    target = call.arguments[0] if call.site.name.endswith("_") else call.output
    axis, index, source = (*call.arguments[1:4], *call.named.values())[:3]
    write = target.index_copy_ if "index" in call.site.name else target.scatter_
    result: Tensor = write(axis, index, source)
    return result


_FORMS: dict[str, Callable[[Call, Trace, str], Any]] = {
    "axes": _other_axes,
    "exchanged": _exchanged,
    "first": _one_of_sum,
    "from": _replaced,
    "last": _one_of_sum,
    "later": _swapped,
    "operand": _with_operand,
    "operands": _of_layer_before,
    "overwrites": _overwritten,
    "skipped": _skipped,
    "twice": _repeated,
}
"""From a call, the trace and the rest of a form, to another output."""


def merges(call: Call) -> bool:
    """Whether a call merges the last two axes of its operand."""
    shapes = _shapes(call)
    if shapes is None:
        return False
    given, made = shapes
    return (
        len(given) == len(made) + 1
        and given[:-2] == made[:-1]
        and given[-2] * given[-1] == made[-1]
        and min(given[-2:]) > 1
    )


def divides(call: Call) -> bool:
    """Whether a call divides the last axis of its operand."""
    shapes = _shapes(call)
    if shapes is None:
        return False
    given, made = shapes
    return (
        len(made) == len(given) + 1
        and made[:-2] == given[:-1]
        and made[-2] * made[-1] == given[-1]
        and min(made[-2:]) > 1
    )


def _shapes(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    if call.site.name not in _MERGING or not is_float(call.output) or not call.operands:
        return None
    return tuple(call.operands[0].shape), tuple(call.output.shape)


def _axis_of(call: Call) -> int | None:
    """The axis of a sum that has no other one."""
    if call.site.name != "sum" or not is_float(call.output):
        return None
    axis = call.named.get("dim", call.arguments[1] if len(call.arguments) > 1 else None)
    axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
    return axis if isinstance(axis, int) and call.operands[0].shape[axis] > 1 else None


def producer(trace: Trace, call: Call, operand: Tensor) -> Call | None:
    """The call of the same layer that returned a tensor."""
    for one in reversed(list(trace.calls.get(call.site.layer, {}).values())):
        if one is not call and one.output is operand:
            return one
    return None


def _rotates(steps: list[Call]) -> bool:
    """Whether steps multiply by two tensors that no token changes, as sines and cosines are."""
    fixed = {
        id(one)
        for step in steps
        if step.site.name == "mul"
        for one in step.operands
        if not one.requires_grad and one.ndim > 2
    }
    return len(fixed) == 2


class Forms:
    """The forms that may be tried at the calls of a traced pass.

    Args:
        trace: of a pass that kept all calls, with what gradients need.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._sources: dict[int | None, list[tuple[str, Tensor, int]]] = {}
        self._numbers = {
            id(call): number
            for calls in trace.calls.values()
            for number, call in enumerate(calls.values())
        }
        self._makers = {
            (layer, id(call.output)): call
            for layer, calls in trace.calls.items()
            for call in calls.values()
        }
        self._readers = Counter(
            (layer, id(operand))
            for layer, calls in trace.calls.items()
            for call in calls.values()
            for operand in call.operands
        )

    def of(self, call: Call) -> Iterator[str]:
        """The forms at a call."""
        if not isinstance(call.output, Tensor):
            shapes = [getattr(one, "shape", None) for one in call.output]
            for one, two in combinations(range(min(len(shapes), 6)), 2):
                if shapes[one] == shapes[two]:
                    yield f"exchanged {one},{two}"
            return
        if merges(call) or divides(call):
            yield "axes"
        if call.site.name.rstrip("_") in VIEWS or call.site.name.endswith("_"):
            return
        yield from self._wired(call)
        if _axis_of(call) is not None:
            yield from ("last", "first")

    def _wired(self, call: Call) -> Iterator[str]:
        before, made = self._before(call), call.output
        for name, tensor in before:
            if tensor.shape == made.shape and tensor.dtype == made.dtype and tensor is not made:
                is_first = bool(call.operands) and tensor is call.operands[0]
                yield "skipped" if is_first else f"from {name}"
        moving = [n for n, one in enumerate(call.operands) if one.requires_grad]
        for number in moving:
            yield from self._of_operand(call, number, before)
        if call.site.layer and call.site.path and moving:
            for count in range(1, min(len(moving), 3) + 1):
                for some in combinations(moving, count):
                    yield f"operands {','.join(map(str, some))} before"
        yield from self._repeated(call)

    def _of_operand(
        self, call: Call, number: int, before: list[tuple[str, Tensor]]
    ) -> Iterator[str]:
        old = call.operands[number]
        inner = self._makers.get((call.site.layer, id(old)))
        if inner is not None and self._can_follow(inner, call):
            yield f"later {inner.site.name} of {number}"
        if self._is_read_once(call, inner, old):
            return
        for name, tensor in before:
            if tensor.shape == old.shape and tensor.dtype == old.dtype and tensor is not old:
                yield f"operand {number} from {name}"

    def _is_read_once(self, call: Call, inner: Call | None, operand: Tensor) -> bool:
        """Whether a tensor in place of an operand is the same as one in place of an output."""
        if inner is None or inner.site.name.rstrip("_") in VIEWS or inner.site.name[-1] == "_":
            return False
        return bool(self._readers[call.site.layer, id(operand)] == 1)

    @staticmethod
    def _can_follow(inner: Call, call: Call) -> bool:
        """Whether an operation can be applied after another one instead of before."""
        operands = inner.operands
        if inner.site.name in VIEWS or not operands or not isinstance(inner.output, Tensor):
            return False
        shape: tuple[int, ...] = tuple(inner.output.shape)
        return tuple(operands[0].shape) == shape == tuple(call.output.shape)

    def _repeated(self, call: Call) -> Iterator[str]:
        """The tensors that reach the rest of the model only through a call.

        What lies between is one function, such as a rotation or a norm; it may be applied twice.
        """
        steps = self._trace.in_module(call)
        for number, step in enumerate(steps[:-1]):
            start = step.output
            is_same = isinstance(start, Tensor) and start.shape == call.output.shape
            if not is_same or not start.requires_grad or len(steps) - number > _LONGEST:
                continue
            inner = steps[number + 1 :]
            if sum(id(start) in map(id, one.operands) for one in inner) > 1 and self._joins(
                start, inner
            ):
                kind = "rotation" if _rotates(inner) else "function"
                origin = self._origin(step).site.path or "layer"
                yield f"twice {kind} of {origin} from {step.site.anywhere}"

    def _origin(self, call: Call) -> Call:
        """The operation whose output a view shows."""
        while call.site.name in VIEWS and call.operands:
            maker = self._makers.get((call.site.layer, id(call.operands[0])))
            if maker is None or maker is call:
                return call
            call = maker
        return call

    def _joins(self, start: Tensor, steps: list[Call]) -> bool:
        """Whether only the steps read what depends on a tensor, but for the last one's output."""
        layer = steps[0].site.layer
        left = Counter({id(start): self._readers[layer, id(start)]})
        for step in steps:
            read = [id(one) for one in step.operands if id(one) in left]
            left.subtract(read)
            if read and step is not steps[-1]:
                left.update({id(one): self._readers[layer, id(one)] for one in step.outputs})
        return bool(read) and all(count == 0 for count in left.values())

    def _before(self, call: Call) -> list[tuple[str, Tensor]]:
        """The tensors of the layer that are known at a call, by the names that sources have."""
        layer = call.site.layer
        if layer not in self._sources:
            self._sources[layer] = list(self._in_layer(layer))
        at = self._numbers[id(call)]
        return [(name, tensor) for name, tensor, number in self._sources[layer] if number < at]

    def _in_layer(self, layer: int | None) -> Iterator[tuple[str, Tensor, int]]:
        seen: set[int] = set()
        if layer in self._trace.read and layer is not None:
            yield LAYER, self._trace.read[layer], -1
            seen.add(id(self._trace.read[layer]))
            if layer - 1 in self._trace.read:
                yield f"<{LAYER}", self._trace.read[layer - 1], -1
        for number, call in enumerate(self._trace.calls.get(layer, {}).values()):
            out = call.output
            if isinstance(out, Tensor) and out.requires_grad and id(out) not in seen:
                seen.add(id(out))
                yield str(call.site.anywhere), out, number


def accumulations(trace: Trace) -> list[list[str]]:
    """Edits of additions in place, which have no gradient by themselves."""
    found = {
        (call.site.path, call.site.name)
        for calls in trace.calls.values()
        for call in calls.values()
        if call.site.name in _ADDING and not call.site.path.startswith(OUTSIDE)
    }
    return [[str(Site(None, path, EVERY, name)), "overwrites"] for path, name in sorted(found)]
