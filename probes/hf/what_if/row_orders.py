"""Edits of the rows of tokens in the embeddings or in the output head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor

from hf.what_if.modules import has_own_head, replaced

_SLICES = ("1/1", "1/2", "2/2", "1/4", "4/4", "1/8", "8/8", "16/16", "32/32")
"""The whole vocabulary, and its first and last rows: added tokens are the last ones."""
_ORDERS = ("reversed", "next", "previous", "halves")
EMBEDDINGS, HEAD, SHARED = "embeddings", "head", "embeddings and head"


def tables(model: Any) -> list[str]:
    """The tables whose rows are tokens."""
    return [EMBEDDINGS, HEAD, SHARED] if has_own_head(model) else [SHARED]


def orders(model: Any) -> list[str]:
    """The orders to try: `4/4 reversed` is the last quarter in reverse order."""
    count = model.get_input_embeddings().weight.shape[0]
    return [
        f"{part} {order}"
        for part in _SLICES
        for order in _ORDERS
        if count // int(part.partition("/")[2]) > 1
    ]


@contextmanager
def row_order(model: Any, value: Any) -> Iterator[None]:
    """Rows in another order, `["embeddings", "4/4 reversed"]`."""
    table, form = value
    part, _, order = str(form).partition(" ")
    number, count = map(int, part.split("/"))
    if order not in _ORDERS:
        raise InapplicableError(f"there is no order {order!r}")

    def moved(weight: Tensor) -> Tensor:
        size = weight.shape[0] // count
        first = (number - 1) * size
        last = weight.shape[0] if number == count else first + size
        rows = weight[first:last]
        orders = {
            "reversed": lambda: rows.flip(0),
            "next": lambda: rows.roll(-1, 0),
            "previous": lambda: rows.roll(1, 0),
            "halves": lambda: rows.roll(rows.shape[0] // 2, 0),
        }
        changed = weight.clone()
        changed[first:last] = orders[order]()
        return changed

    with replaced(_weights(model, str(table)), moved):
        yield


@contextmanager
def mean_rows(model: Any, value: Any) -> Iterator[None]:
    """Rows from a token on are the mean of the others, `["embeddings", 56]`.

    So are the rows of added tokens in tables that are resized, if nothing trains or loads them.
    """
    table, end = str(value[0]), int(value[1])

    def averaged(weight: Tensor) -> Tensor:
        if not 0 < end < weight.shape[0]:
            raise InapplicableError(f"this model has no rows before and after {end}")
        return torch.cat([weight[:end], weight[:end].mean(0).expand(weight.shape[0] - end, -1)])

    with replaced(_weights(model, table), averaged):
        yield


def _weights(model: Any, table: str) -> list[Any]:
    """The tables of a name, once each."""
    weights = {
        EMBEDDINGS: [model.get_input_embeddings().weight],
        HEAD: [getattr(model.get_output_embeddings(), "weight", None)],
    }
    chosen = weights.get(table) or [*weights[EMBEDDINGS], *weights[HEAD]]
    return list({id(each): each for each in chosen if each is not None}.values())
