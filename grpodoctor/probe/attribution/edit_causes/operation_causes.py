"""The causes that generic edits of operations stand for, and their words.

A name says no more than the edit shows: which operation has another operand, order, axis or number
of repetitions.
"""

from __future__ import annotations

import re

from grpodoctor.probe.attribution.edit_causes.computed_cause import ComputedCause

_COMPARE = (
    "Read the code of this module in both engines, and compare what each of its steps reads and "
    "returns for one response."
)
_STATISTICS = frozenset({"pow", "square", "mean", "var", "add", "rsqrt", "sqrt"})
_FUNCTIONS = frozenset(
    {"silu", "gelu", "relu", "relu2", "tanh", "sigmoid", "softplus", "elu", "leaky_relu", "mish",
     "square", "exp", "softmax"}
)  # fmt: skip
_ATTENDS = frozenset({"scaled_dot_product_attention", "matmul"})
_OPERANDS = {"0": "queries", "1": "keys", "2": "values"}


def cause_of_operation(site: str, form: str) -> ComputedCause:
    """The cause of an edit of an operation."""
    layer, path, name = _parts(site)
    kind, _, rest = form.partition(" ")
    where = _module(path, layer)
    is_norm = re.search(r"norm|(^|[._])ln", path.rpartition(".")[2]) is not None
    if kind == "later":
        inner = rest.partition(" of ")[0]
        identity = "activation-order" if inner in _FUNCTIONS else "operation-order"
        return _cause(identity, f"applies {inner} after {name} in {where}")
    if kind == "twice":
        what, _, origin = rest.rpartition(" from ")[0].partition(" of ")
        if what == "rotation":
            return _cause("rope-twice", f"rotates {origin} of {where} twice")
        if is_norm:
            return _cause("norm-twice", f"applies {where} twice")
        return _cause("repeated-operation", f"applies a function in {where} twice")
    if kind == "operands":
        return _of_layer_before(name, where, rest.split(" ")[0].split(","))
    if kind in ("from", "operand", "skipped"):
        computes = {name, rest.rpartition(":")[2]} & _STATISTICS
        of_norm = is_norm and bool(computes)
        return _replaced(name, where, of_norm=of_norm, is_skipped=kind == "skipped")
    named = {
        "exchanged": ("tensor-order", f"exchanges two parts of a tensor in {where}"),
        "axes": ("tensor-order", f"orders the axes of a tensor in {where} differently"),
        "overwrites": ("expert-accumulation", f"overwrites values in {where} instead of adding"),
    }
    return _cause(*named.get(kind, ("missing-part", f"keeps one part of a sum in {where}")))


def _of_layer_before(name: str, where: str, numbers: list[str]) -> ComputedCause:
    if name not in _ATTENDS:
        return _cause("operand-source", f"takes operands of {where} from the layer before")
    what = " and ".join(_OPERANDS.get(number, number) for number in numbers)
    identity = "operand-source" if "0" in numbers else "kv-layer"
    return _cause(identity, f"takes the {what} of {where} from the layer before")


def _replaced(name: str, where: str, *, of_norm: bool, is_skipped: bool) -> ComputedCause:
    if is_skipped and name in _FUNCTIONS:
        return _cause("missing-activation", f"applies no {name} in {where}")
    if is_skipped:
        return _cause("missing-operation", f"leaves out {name} in {where}")
    if of_norm:
        return _cause("norm-statistics", f"computes {where} with another tensor's statistics")
    return _cause("operand-source", f"reads another tensor in {where}")


def _cause(identity: str, does: str) -> ComputedCause:
    return ComputedCause(identity, f"The {{side}} {does}", "", _COMPARE)


def operation_in_words(site: str, form: str) -> str:
    """An edit of an operation, for a sentence."""
    layer, path, name = _parts(site)
    where = f"{name} in {_module(path, layer)}"
    kind, _, rest = form.partition(" ")
    if kind == "later":
        inner = rest.partition(" of ")[0]
        return f"{inner} applied after {where}, not before it"
    if kind == "twice":
        origin = rest.rpartition(" from ")[0].partition(" of ")[2]
        return f"the steps from {origin} to {where} applied twice"
    if kind == "operands":
        numbers = rest.partition(" ")[0].replace(",", " and ")
        return f"operands {numbers} of {where} taken from the layer before"
    if kind == "operand":
        number, _, source = rest.partition(" from ")
        return f"operand {number} of {where} replaced by {_source(source)}"
    words = {
        "from": f"the output of {where} replaced by {_source(rest)}",
        "skipped": f"{where} left out",
        "exchanged": f"outputs {rest.replace(',', ' and ')} of {where} exchanged",
        "axes": f"{where} with its axes in the other order",
        "overwrites": f"{where} that overwrites instead of adding",
    }
    return words.get(kind, f"only the {kind} part of {where}")


def _source(text: str) -> str:
    before = "of the layer before " if text.startswith("<") else ""
    text = text.removeprefix("<")
    if text == "layer":
        return f"what the layer {before}reads"
    _, path, name = _parts(text)
    return f"the output of {name} in {_module(path, '')} {before}".rstrip()


def _parts(site: str) -> tuple[str, str, str]:
    """Layer, module and name of an operation."""
    match = re.fullmatch(r"(?:(\d+):)?(\^?[\w.]*)#(?:\d+|\*):(\w+)", site)
    layer, path, name = match.groups() if match else ("", site, "an operation")
    return layer or "", path, name


def _module(path: str, layer: str) -> str:
    if path.startswith("^"):
        return path[1:] or "the model"
    everywhere = f"layer {layer}" if layer else "every layer"
    return f"{path} of {everywhere}" if path else everywhere
