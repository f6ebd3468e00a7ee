"""Edits of the order of rows in projections, as another convention of the checkpoint has it.

Gate and up projection are stored one after the other, or row by row in turn. Queries, keys and
values are stored as three blocks, or as groups of queries with one head of keys and values. Tensor
parallelism splits each part of a fused projection among ranks; a split of the whole mixes parts,
and a rank without its own number has the part of the first rank. Engines fuse projections that a
checkpoint stores separately, so the same orders concern both.
Conversions between the two layouts of rotary positions permute the rows of each head, so they need
the right number of heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.modules import layers

GATE_UP = re.compile(r"(gate_up|gate_and_up|up_gate|input_linear|w13|wi|fc1_glu)(_proj)?$")
_RANKS = (2, 4, 8)
_SPLIT, _PERMUTED = "split among ", " permuted for "
_SPLITS = tuple(f"{_SPLIT}{ranks}" for ranks in _RANKS)
_FIRST = "of the first of "
_FIRSTS = tuple(f"{_FIRST}{ranks}" for ranks in _RANKS)
"""Each of so many ranks has the part of the first one."""
_BLOCKS = tuple(
    f"{how} blocks of {size}" for size in (8, 16, 32, 64, 128) for how in ("in", "from")
)
"""Rows of gate and up in turn by blocks, as kernels read them; or undone, where none should be."""
_FUSED_FORMS = (*_SPLITS, *_FIRSTS, *_BLOCKS)
_FORMS = ("in turn", "halves", "swapped", *_FUSED_FORMS)
_PAIRED = tuple(
    f"{part} in {layout}"
    for part in ("weights", "biases", "queries", "keys")
    for layout in ("pairs", "halves")
)
"""The rows of each head for rotated pairs or halves: a conversion forgets a part, or is undone."""
_QKV_FORMS = ("groups", "blocks", *_SPLITS, *_FIRSTS)
GATE_AND_UP = "gate and up"
"""The name of separate projections that engines fuse."""
_GATES = (("gate_proj", "up_proj"), ("w1", "w3"))
_SEPARATE = (("q_proj", "k_proj", "v_proj"), ("wq", "wk", "wv"), ("query", "key", "value"))
_FUSED = (("qkv_proj",), ("query_key_value",), ("Wqkv",), ("c_attn",))
_PROJECTIONS: tuple[tuple[str, ...], ...] = (*_SEPARATE, *_FUSED)


def layouts(model: nn.Module) -> list[list[str]]:
    """Pairs of a projection and another order of its rows."""
    found = [
        [name, form]
        for name, count in _gate_ups(model).items()
        for form in _FORMS
        if _fits(count, form)
    ]
    if pairs := _pairs(model):
        count = 2 * len(pairs[0][0])
        forms = ("in turn", "halves", *_FUSED_FORMS)
        found += [[GATE_AND_UP, form] for form in forms if _fits(count, form)]
    if _attentions(model):
        biased = any(len(kinds) > 1 for kinds in _attentions(model))
        paired = [form for form in _PAIRED if biased or not form.startswith(("weights", "biases"))]
        forms = (*_QKV_FORMS, *_permutations(model), *paired)
        found += [["qkv", form] for form in forms]
    return found + [["in_proj_qkv", form] for form in _SPLITS if _linear_attentions(model)]


@contextmanager
def weight_layout(model: nn.Module, value: Any) -> Iterator[None]:
    """Rows in another order, such as `["gate_up_proj", "in turn"]` or `["qkv", "groups"]`.

    `["qkv", "keys permuted for 4"]` concerns the rows of the keys alone, as if they had 4 heads.
    `["qkv", "weights in pairs"]` leaves the biases as they are; the rotation stays the family's.
    """
    name, form = map(str, value)
    if name == "in_proj_qkv":
        changed = _linear_qkv(model, form)
    elif name == GATE_AND_UP:
        changed = _gate_and_up(model, form)
    else:
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


def _gate_ups(model: Any) -> dict[str, int]:
    """Fused projections of gate and up, with the rows of both."""
    width = model.config.get_text_config().hidden_size
    return {
        name: weight.shape[rows_of(weight, width)]
        for name, weight in _parameters(model)
        if GATE_UP.search(name) and weight.ndim > 1
    }


def _fits(rows: int, form: str) -> bool:
    """Whether so many rows have such an order."""
    try:
        _order_of_halves(rows, form)
    except InapplicableError:
        return False
    return True


def _gate_up(model: Any, name: str, form: str) -> _Changed:
    width = model.config.get_text_config().hidden_size
    return [
        (weight, _halves(weight.data, form, rows_of(weight, width)))
        for own, weight in _parameters(model)
        if own == name
    ]


def rows_of(weight: Tensor, hidden: int) -> int:
    """The dimension of the rows: the first of a matrix; that of no hidden states for experts."""
    if weight.ndim < 3:
        return 0
    return -1 if weight.shape[-2] == hidden != weight.shape[-1] else -2


def _pairs(model: nn.Module) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """The weights, and the biases, of separate gate and up projections."""
    found = []
    for layer in layers(model):
        for module in layer.modules():
            for names in _GATES:
                gate, up = (getattr(module, name, None) for name in names)
                if not isinstance(gate, nn.Linear) or not isinstance(up, nn.Linear):
                    continue
                kinds: Any = ((gate.weight, up.weight), (gate.bias, up.bias))
                found += [
                    (one, other)
                    for one, other in kinds
                    if one is not None and other is not None and one.shape == other.shape
                ]
    return found


def _gate_and_up(model: nn.Module, form: str) -> _Changed:
    changed: _Changed = []
    for gate, up in _pairs(model):
        rows = _halves(torch.cat([gate.data, up.data]), form, 0)
        changed += zip((gate, up), rows.chunk(2), strict=True)
    return changed


def _halves(data: Tensor, form: str, at: int) -> Tensor:
    order = _order_of_halves(data.shape[at], form)
    return data.index_select(at, order.to(data.device)).contiguous()


def _order_of_halves(count: int, form: str) -> Tensor:
    """Places of the rows of two halves that are read in another order."""
    if count % 2:
        raise InapplicableError("a fused projection has an odd number of rows")
    places = torch.arange(count)
    if form.startswith(_SPLIT):
        return _split([count // 2] * 2, form)
    if form.startswith(_FIRST):
        return _of_first([count // 2] * 2, form)
    if form == "swapped":
        return places.roll(count // 2)
    how, _, size = form.replace("in turn", "in blocks of 1").rpartition(" ")
    width = int(size) if size.isdigit() else 1
    if (count // 2) % width or width >= count // 2:
        raise InapplicableError(f"the rows of a half do not divide into blocks of {width}")
    shape = (2, -1, width) if how.startswith("in ") else (-1, 2, width)
    return places.view(shape).transpose(0, 1).flatten()


def _of_first(sizes: Sequence[int], form: str) -> Tensor:
    """Places of the rows of some parts, if each rank has those of the first rank."""
    ranks = int(form.removeprefix(_FIRST))
    if any(size % ranks for size in sizes):
        raise InapplicableError(f"a part of a fused projection does not divide by {ranks}")
    parts = torch.split(torch.arange(sum(sizes)), list(sizes))
    return torch.cat([part[: len(part) // ranks].repeat(ranks) for part in parts])


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
        for weights in _of_kind(kinds, form):
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
    sizes = [queries * size, pairs * size, pairs * size]
    if form.startswith(_SPLIT):
        return _split(sizes, form)
    if form.startswith(_FIRST):
        return _of_first(sizes, form)
    if _PERMUTED in form:
        return _permuted(sizes, (queries, pairs), form)
    if form in _PAIRED:
        return _paired(sizes, size, form)
    places = torch.arange(rows)
    grouped = places.view(pairs, each + 2, size)
    blocks = torch.cat([part.flatten() for part in torch.split(grouped, [each, 1, 1], 1)])
    return blocks if form == "groups" else blocks.argsort()


def _of_kind(kinds: list[list[nn.Parameter]], form: str) -> list[list[nn.Parameter]]:
    """The weights or the biases if an order is one of these alone, otherwise both."""
    if not form.startswith(("weights in ", "biases in ")):
        return kinds
    return kinds[:1] if form.startswith("weights") else kinds[1:]


def _paired(sizes: Sequence[int], size: int, form: str) -> Tensor:
    """Places of rows: those of each head in pairs that are rotated, or in halves."""
    part, _, layout = form.partition(" in ")
    if size % 2:
        raise InapplicableError("the heads of this model have an odd number of dimensions")
    blocks = list(torch.split(torch.arange(sum(sizes)), list(sizes)))
    for at, name in enumerate(("queries", "keys")):
        if part in (name, "weights", "biases"):
            shape = (-1, 2, size // 2) if layout == "pairs" else (-1, size // 2, 2)
            blocks[at] = blocks[at].view(shape).transpose(1, 2).flatten()
    return torch.cat(blocks)


def _split(sizes: Sequence[int], form: str) -> Tensor:
    """Places of the rows of some parts, after a split of the whole among ranks."""
    ranks = int(form.removeprefix(_SPLIT))
    if any(size % ranks for size in sizes):
        raise InapplicableError(f"a part of a fused projection does not divide by {ranks}")
    shares = [size // ranks for size in sizes]
    by_rank = [torch.split(rank, shares) for rank in torch.arange(sum(sizes)).chunk(ranks)]
    return torch.cat([torch.cat(part) for part in zip(*by_rank, strict=True)])


def _permutations(model: Any) -> list[str]:
    """The permutations of keys for the heads of the queries, and the other way round."""
    config = model.config.get_text_config()
    queries = int(config.num_attention_heads)
    pairs = int(getattr(config, "num_key_value_heads", None) or queries)
    both = [f"keys{_PERMUTED}{queries}", f"queries{_PERMUTED}{pairs}"]
    return both if pairs != queries else []


def _permuted(sizes: Sequence[int], heads: tuple[int, int], form: str) -> Tensor:
    """Places of rows: those of one part are permuted for another number of heads."""
    part, _, wrong = form.partition(_PERMUTED)
    at = ("queries", "keys").index(part)
    if sizes[at] % (2 * int(wrong)) or sizes[at] % (2 * heads[at]):
        raise InapplicableError(f"the rows of {part} do not divide among {wrong} heads")
    blocks = list(torch.split(torch.arange(sum(sizes)), list(sizes)))
    paired = blocks[at].view(int(wrong), 2, -1).transpose(1, 2).flatten()
    blocks[at] = paired.view(heads[at], -1, 2).transpose(1, 2).flatten()
    return torch.cat(blocks)


def _linear_attentions(model: nn.Module) -> list[Any]:
    """Blocks of linear attention whose queries, keys and values are one projection."""
    return [
        module
        for layer in layers(model)
        for module in layer.modules()
        if isinstance(getattr(module, "in_proj_qkv", None), nn.Linear)
        and isinstance(getattr(module, "key_dim", None), int)
        and isinstance(getattr(module, "value_dim", None), int)
    ]


def _linear_qkv(model: nn.Module, form: str) -> _Changed:
    changed: _Changed = []
    for module in _linear_attentions(model):
        order = _split([module.key_dim, module.key_dim, module.value_dim], form)
        weight = module.in_proj_qkv.weight
        changed.append((weight, weight.data[order.to(weight.device)]))
    return changed
