"""Parts of tensors as engines divide them among ranks.

`name[2/4]` is the second of four blocks of rows: of a table of embeddings, of the experts of a
fused tensor, or of any tensor that FSDP divides by its first dimension. `name[rank 2/4]` is the
shard of a tensor-parallel rank: outputs of most projections, each part of a fused one by itself,
and inputs of the projections back to the hidden states. Norms, routers, and biases that are added
after the sum over ranks are not divided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.loading import ROUTERS
from hf.what_if.parts import LAST
from hf.what_if.weight_layout import GATE_UP, rows_of

_PART = re.compile(r"(?P<name>.+)\[(?P<rank>rank )?(?P<number>\d+)/(?P<count>\d+)\]")
_QUERIES_KEYS_VALUES = re.compile(r"(qkv_proj|Wqkv|c_attn)$")
"""Fused projections that store all queries first; others store head by head."""
_UNDIVIDED = re.compile(r"norm|(^|\.)ln_|layernorm|rotary")


def with_parts(
    model: nn.Module,
    own: Mapping[str, Tensor],
    others: Mapping[str, Tensor],
    parts: Sequence[str],
) -> dict[str, Tensor]:
    """The model's tensors with parts of another checkpoint, by name.

    Tensors that do not have so many equal parts are left out.

    Raises:
        InapplicableError: if a part names no tensor of both, or no tensor has the parts.
    """
    mixed: dict[str, Tensor] = {}
    for part in parts:
        found = _PART.fullmatch(str(part))
        if found is None or found["name"] not in own or found["name"] not in others:
            raise InapplicableError(f"this model has no {part}")
        name, number, count = found["name"], int(found["number"]), int(found["count"])
        weight, other = own[name], others[name]
        blocks = rank_blocks(model, name, weight) if found["rank"] else (0, 1)
        at = None if blocks is None else part_indices(weight, *blocks, number, count)
        if at is None or blocks is None or other.shape != weight.shape:
            continue
        kept = mixed.setdefault(name, weight.detach().clone())
        at = at.to(kept.device)
        kept.index_copy_(blocks[0], at, other.to(kept).index_select(blocks[0], at))
    if parts and not mixed:
        raise InapplicableError(f"no tensor has the parts {', '.join(parts[:3])}")
    return mixed


def rank_blocks(
    model: nn.Module, name: str, weight: Tensor
) -> tuple[int, int | Sequence[int]] | None:
    """The dimension that tensor parallelism divides, and the parts that it divides by themselves.

    The parts are a number of equal ones, or their sizes. None if the tensor is not divided.
    """
    path, _, kind = name.rpartition(".")
    leaf = path.rpartition(".")[2] if kind in ("weight", "bias") else kind
    is_last = LAST.search(leaf) is not None
    if _UNDIVIDED.search(leaf) or re.search(ROUTERS, path) or (kind == "bias" and is_last):
        return None
    config: Any = model.config
    text = config.get_text_config()
    if weight.ndim == 3:  # fused experts: the dimension of no hidden states
        is_square = weight.shape[-1] == weight.shape[-2]
        inner = 2 if is_square and is_last else rows_of(weight, text.hidden_size) % 3
        return inner, 2 if GATE_UP.search(leaf) else 1
    is_transposed = weight.ndim == 2 and type(model.get_submodule(path)).__name__ == "Conv1D"
    if is_last:
        return (0 if is_transposed else weight.ndim - 1), 1
    at = 1 if is_transposed else 0
    if GATE_UP.search(leaf):
        return at, 2
    if _QUERIES_KEYS_VALUES.search(leaf):
        return at, _heads(text, weight.shape[at])
    return at, 1


def _heads(config: Any, rows: int) -> Sequence[int]:
    """The rows of queries, keys and values in a fused projection."""
    queries = int(config.num_attention_heads)
    pairs = int(getattr(config, "num_key_value_heads", None) or queries)
    size = rows // (queries + 2 * pairs)
    return [queries * size, pairs * size, rows - (queries + pairs) * size]


def part_indices(
    weight: Tensor, at: int, blocks: int | Sequence[int], number: int, count: int
) -> Tensor | None:
    """The places of a part along a dimension; None if it cannot be divided equally."""
    whole = weight.shape[at]
    sizes = [whole // blocks] * blocks if isinstance(blocks, int) else list(blocks)
    if sum(sizes) != whole or any(size % count for size in sizes):
        return None
    starts = torch.tensor([0, *sizes[:-1]]).cumsum(0).tolist()
    return torch.cat(
        [
            torch.arange(size // count) + start + (number - 1) * (size // count)
            for start, size in zip(starts, sizes, strict=True)
        ]
    )
