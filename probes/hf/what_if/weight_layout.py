"""Edits of the order of rows in fused projections, as another convention of the checkpoint has it.

Gate and up projection are stored one after the other, or row by row in turn. Queries, keys and
values are stored as three blocks, or as groups of queries with one head of keys and values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.modules import layers

_GATE_UP = re.compile(r"(gate_up|gate_and_up|up_gate|input_linear|w13|wi|fc1_glu)(_proj)?$")
_FORMS = ("in turn", "halves", "swapped")
_QKV_FORMS = ("groups", "blocks")
_SEPARATE = (("q_proj", "k_proj", "v_proj"), ("wq", "wk", "wv"), ("query", "key", "value"))
_FUSED = (("qkv_proj",), ("query_key_value",), ("Wqkv",), ("c_attn",))
_PROJECTIONS: tuple[tuple[str, ...], ...] = (*_SEPARATE, *_FUSED)


def layouts(model: nn.Module) -> list[list[str]]:
    """Pairs of a projection and another order of its rows."""
    found = [[name, form] for name in _gate_ups(model) for form in _FORMS]
    return found + [["qkv", form] for form in _QKV_FORMS if _attentions(model)]


@contextmanager
def weight_layout(model: nn.Module, value: Any) -> Iterator[None]:
    """Rows in another order, such as `["gate_up_proj", "in turn"]` or `["qkv", "groups"]`."""
    name, form = map(str, value)
    changed = _qkv(model, form) if name == "qkv" else _gate_up(model, name, form)
    if not changed:
        raise InapplicableError(f"this model has no fused projection {name}")
    before = [weight.data for weight, _ in changed]
    try:
        for weight, data in changed:
            weight.data = data
        yield
    finally:
        for (weight, _), data in zip(changed, before, strict=True):
            weight.data = data


_Changed = list[tuple[nn.Parameter, Tensor]]


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Parameters of the layers by the name of their projection, once each."""
    for layer in layers(model):
        for path, weight in layer.named_parameters():
            yield re.sub(r"\.(weight|bias)$", "", path).rpartition(".")[2], weight


def _gate_ups(model: nn.Module) -> list[str]:
    return list(dict.fromkeys(name for name, _ in _parameters(model) if _GATE_UP.search(name)))


def _gate_up(model: Any, name: str, form: str) -> _Changed:
    width = model.config.get_text_config().hidden_size
    return [
        (weight, _halves(weight.data, form, _rows(weight, width)))
        for own, weight in _parameters(model)
        if own == name
    ]


def _rows(weight: Tensor, hidden: int) -> int:
    """The dimension of the rows: the first of a matrix; that of no hidden states for experts."""
    if weight.ndim < 3:
        return 0
    return -1 if weight.shape[-2] == hidden != weight.shape[-1] else -2


def _halves(data: Tensor, form: str, at: int) -> Tensor:
    if data.shape[at] % 2:
        raise InapplicableError("a fused projection has an odd number of rows")
    rows = data.movedim(at, 0)
    if form == "in turn":
        rows = rows.reshape(2, -1, *rows.shape[1:]).transpose(0, 1).flatten(0, 1)
    elif form == "halves":
        rows = rows.reshape(-1, 2, *rows.shape[1:]).transpose(0, 1).flatten(0, 1)
    else:
        rows = rows.roll(len(rows) // 2, 0)
    return rows.movedim(0, at).contiguous()


def _attentions(model: nn.Module) -> list[list[list[nn.Parameter]]]:
    """Per attention block: its weights, and its biases, in the order of queries, keys, values."""
    found = []
    for layer in layers(model):
        for module in layer.modules():
            names = next((n for n in _PROJECTIONS if all(hasattr(module, e) for e in n)), None)
            if names is None or not isinstance(getattr(module, names[0]), nn.Linear):
                continue
            parts = [getattr(module, name) for name in names]
            kinds = [[part.weight for part in parts], [part.bias for part in parts]]
            found.append([kind for kind in kinds if all(each is not None for each in kind)])
    return found


def _qkv(model: Any, form: str) -> _Changed:
    config = model.config.get_text_config()
    queries = int(config.num_attention_heads)
    pairs = int(getattr(config, "num_key_value_heads", None) or queries)
    changed: _Changed = []
    for kinds in _attentions(model):
        for weights in kinds:
            whole = torch.cat([weight.data for weight in weights])
            order = _order(len(whole), queries, pairs, form)
            parts = torch.split(whole[order.to(whole.device)], [len(weight) for weight in weights])
            changed += zip(weights, parts, strict=True)
    return changed


def _order(rows: int, queries: int, pairs: int, form: str) -> Tensor:
    """Places of rows: three blocks that are read as groups, or groups read as blocks."""
    heads = queries + 2 * pairs
    if rows % heads or queries % pairs:
        raise InapplicableError("the heads of this model do not fill its projections")
    size, each = rows // heads, queries // pairs
    places = torch.arange(rows)
    grouped = places.view(pairs, each + 2, size)
    blocks = torch.cat([part.flatten() for part in torch.split(grouped, [each, 1, 1], 1)])
    return blocks if form == "groups" else blocks.argsort()
