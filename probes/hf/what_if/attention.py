"""Edits of attention: masks, scale, soft-cap, precision of the key-value cache, order of heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.what_if.rounding import rounded, saturated, scaled_once

CACHED = ("keys", "values")
"""What a cache can round alone."""
_NAME = "grpodoctor_what_if"


class KeptCache:
    """Keys and values of one forward pass, which replace those of another pass at some places."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, Tensor]] = {}
        self.places_BL: Tensor | None = None
        """The places to replace; None records the pass instead."""

    def applied(self, layer: nn.Module, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Record a layer's keys and values, or replace them at the places."""
        if self.places_BL is None:
            self._known[id(layer)] = key, value
            return key, value
        old_key, old_value = self._known[id(layer)]
        places = self.places_BL[:, None, :, None]
        return torch.where(places, old_key, key), torch.where(places, old_value, value)


class Places:
    """Where the sequences of the present forward pass begin, and where their prompts end."""

    def __init__(self) -> None:
        self.ends_B: Tensor | None = None
        """The number of tokens of each row's prompt, in a pass over whole sequences."""
        self.starts_B: Tensor | None = None
        """The number of padding positions before each row's first token; None if there are none."""
        self.length = 0
        """Positions so far, those in the cache included, if there is padding."""

    @contextmanager
    def padded(self, seen_BW: Tensor) -> Iterator[None]:
        """Inside the block, rows begin with padding, where `seen_BW` is 0."""
        self.starts_B, self.length = (seen_BW == 0).sum(dim=1), seen_BW.shape[1]
        try:
            yield
        finally:
            self.starts_B = None

    def within_prompt(self, count: int, device: torch.device) -> Tensor:
        """Pairs of places that are both in the prompt, shape (B, 1, L, L)."""
        if self.ends_B is None:
            raise InapplicableError("the prompts of this pass are unknown")
        inside_BL = torch.arange(count, device=device) < self.ends_B.to(device)[:, None]
        return inside_BL[:, None, :, None] & inside_BL[:, None, None, :]

    def tokens(self, count: int, device: torch.device) -> Tensor:
        """The number of each key's token in its row, below 0 for padding, shape (B or 1, 1, 1, K).

        Raises:
            InapplicableError: if the cache has dropped keys before a window.
        """
        places_BK = torch.arange(count, device=device)[None]
        if self.starts_B is not None:
            if count < self.length:
                raise InapplicableError("the cache of this model keeps a window only")
            places_BK = places_BK - self.starts_B.to(device)[:, None]
        return places_BK[:, None, None]


@dataclass(frozen=True)
class AttentionEdits:
    """Changes of attention that apply together; the defaults change nothing."""

    window: int = 0
    """Positions that a token sees, itself included; 0 keeps the family's."""
    attention_chunk: int = 0
    """Tokens of a chunk that see no earlier chunk, as if its part of the cache were not read."""
    full_attention: bool = False
    """Whether the family's sliding windows are ignored."""
    attention_scale: float = 1.0
    """Factor on the scores."""
    attention_soft_cap: float | None = None
    """Soft-cap of the scores; 0 removes the family's, None keeps it."""
    kv_cache: str = ""
    """Rounding of keys and values, see `rounding.rounded`; `keys in int4`: of one of them."""
    attention_weights: str = ""
    """Rounding of the weights that the values are summed with."""
    head_order: str = ""
    """`tiled` assigns query heads to key-value heads in turn instead of in blocks; `reversed` and
    `next`: key-value heads in another order, as ranks may load them; `first of 2`: all ranks of two
    have the key-value heads of the first."""
    kv_saturation: float = 0.0
    """Keys and values in fp8 with a scale that clips them at this number; 0 does not."""
    cache_scale: tuple[str, float] = ("", 1.0)
    """Keys and values in fp8 whose scale acts once: `unread` divides by it when they are written,
    `unwritten` multiplies by it when they are read."""
    split_attention: int = 0
    """Attention to this many first tokens is merged with the rest by weights of another base."""
    open_prompt: bool = False
    """Whether tokens of a prompt see its later tokens."""
    mask_border: str = ""
    """`self` hides each token from itself, `next` shows the next one; `later` and `earlier` move
    the border of the family's own mask by one token, within the tokens so far."""
    places: Places = field(default_factory=Places)
    """Where sequences begin and prompts end."""
    layer_window: tuple[str, int] = ("", 0)
    """A window in some layers only: `even`, `odd`, or the number of one; and its width."""
    bounded_cache: tuple[str, int] = ("0", 0)
    """How many first and how many last tokens are seen, as where a cache evicts those between."""
    distance_bias: float = 0.0
    """Subtracted from the scores for each position of distance."""
    without_sinks: bool = False
    """Whether the family's attention sinks are ignored."""
    sink_shift: float = 0.0
    """Added to the attention sinks."""
    sink_scale: float = 1.0
    """Factor on the attention sinks."""
    kept: KeptCache | None = None
    """Keys and values of other weights at the first places."""

    def of(self, layer: nn.Module) -> AttentionEdits:
        """The edits of one layer."""
        which, width = self.layer_window
        number = getattr(layer, "layer_idx", None)
        if not width or number is None:
            return self
        applies = which == str(number) or which == ("even", "odd")[number % 2]
        return replace(self, window=int(width)) if applies else self


@contextmanager
def edited_attention(model: nn.Module, edits: AttentionEdits) -> Iterator[None]:
    """Compute attention with edits, in plain tensor operations."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    outer = ALL_ATTENTION_FUNCTIONS.get(_NAME)
    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attention(edits))
    ALL_MASK_ATTENTION_FUNCTIONS.register(_NAME, eager_mask)
    found = (getattr(module, "config", None) for module in model.modules())
    configs = {id(config): config for config in found if config is not None}.values()
    before = [(each, each._attn_implementation) for each in configs]  # noqa: SLF001 - no public name
    try:
        for config, _ in before:
            config._attn_implementation = _NAME  # noqa: SLF001
        yield
    finally:
        for config, kernel in before:
            config._attn_implementation = kernel  # noqa: SLF001
        if outer is not None:  # edits of one phase next to those of all
            ALL_ATTENTION_FUNCTIONS.register(_NAME, outer)


def _attention(edits: AttentionEdits) -> Callable[..., tuple[Tensor, None]]:
    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
        attention_mask: Tensor | None, scaling: float | None = None, softcap: float | None = None,
        s_aux: Tensor | None = None, sinks: Tensor | None = None, indices: Tensor | None = None,
        position_bias: Tensor | None = None, **others: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        _refuse_scores(others)
        key, value = _stored(key, value, edits)
        if edits.kept is not None:
            key, value = edits.kept.applied(module, key, value)
        groups = query.shape[1] // key.shape[1]
        key, value = (_per_head(each, groups, edits.head_order) for each in (key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = torch.matmul(query, key.transpose(2, 3)) * (scale * edits.attention_scale)
        cap = softcap if edits.attention_soft_cap is None else edits.attention_soft_cap
        if cap:
            scores = torch.tanh(scores / cap) * cap
        if position_bias is not None:
            scores = scores + position_bias
        scores = scores.float() + _mask(query, key, attention_mask, edits.of(module))
        if indices is not None:
            scores = _of_selected(scores, indices)
        sinks = None if edits.without_sinks else (s_aux if sinks is None else sinks)
        if sinks is not None:
            sinks = sinks * float(edits.sink_scale) + float(edits.sink_shift)
        weights = _weights(scores, sinks, edits).to(query.dtype)
        if edits.attention_weights:
            weights = rounded(weights, edits.attention_weights)
        return torch.matmul(weights, value).transpose(1, 2).contiguous(), None

    return attend


_PER_QUERY = 4
"""Axes of a tensor with a number for each row, head, query and key."""


def _refuse_scores(others: Mapping[str, Any]) -> None:
    """Refuse a family that adds a further tensor to its scores: without it, no edit would fit."""
    for name, value in others.items():
        if isinstance(value, Tensor) and value.ndim == _PER_QUERY and value.is_floating_point():
            raise InapplicableError(f"this family's attention reads {name}")


def _of_selected(scores: Tensor, indices_BQK: Tensor) -> Tensor:
    """The scores of the keys that an indexer selected, the others at the lowest number.

    Families with sparse attention mask the others themselves only for the kernels that they know.
    """
    hidden = torch.ones_like(scores[:, 0], dtype=torch.bool).scatter(-1, indices_BQK.long(), False)
    return scores.masked_fill(hidden[:, None], torch.finfo(torch.float32).min)


def _stored(key: Tensor, value: Tensor, edits: AttentionEdits) -> tuple[Tensor, Tensor]:
    """Keys and values as a cache in few bits returns them."""
    if edits.kv_cache:
        key, value = _in_cache(key, value, edits.kv_cache)
    if edits.kv_saturation:
        limit = float(edits.kv_saturation)
        key, value = saturated(key, limit), saturated(value, limit)
    form, scale = edits.cache_scale
    if form:
        key, value = (scaled_once(each, form, float(scale)) for each in (key, value))
    return key, value


def _in_cache(key: Tensor, value: Tensor, edit: str) -> tuple[Tensor, Tensor]:
    """Keys and values as a cache returns them, by an edit such as `int8` or `keys in int4/row`."""
    which, _, scheme = edit.rpartition(" in ")
    if which not in ("", *CACHED):
        raise InapplicableError(f"a cache has no {which}")
    return (
        key if which == "values" else rounded(key, scheme),
        value if which == "keys" else rounded(value, scheme),
    )


def _per_head(keys: Tensor, groups: int, order: str) -> Tensor:
    """Keys or values repeated for each query head."""
    if order == "tiled":
        return keys.repeat(1, groups, 1, 1)
    which, _, ranks = order.partition(" of ")
    if ranks:
        size, rest = divmod(keys.shape[1], int(ranks))
        if rest or not size:
            raise InapplicableError(f"{keys.shape[1]} heads do not divide among {ranks} ranks")
        one = keys[:, :size] if which == "first" else keys[:, -size:]
        keys = one.repeat(1, int(ranks), 1, 1)
    elif order:
        keys = keys.flip(1) if order == "reversed" else keys.roll(1, 1)
    return keys.repeat_interleave(groups, dim=1)


def _mask(query: Tensor, key: Tensor, given: Tensor | None, edits: AttentionEdits) -> Tensor:
    """Added to the scores: 0 where a position is seen, otherwise the lowest number."""
    lengths = query.shape[2], key.shape[2]
    last = torch.arange(lengths[0], device=query.device)[:, None] + lengths[1] - lengths[0]
    ages = last - torch.arange(lengths[1], device=query.device)[None]
    unseen = ages < (-1 if edits.mask_border == "next" else 0)
    if edits.mask_border == "self":
        unseen |= (ages == 0) & (last > 0)  # the first token has no other
    if edits.window:
        unseen |= ages >= edits.window
    lowest = torch.finfo(torch.float32).min
    mask = (-edits.distance_bias * ages.float()).masked_fill(unseen, lowest)
    if edits.full_attention:
        mask = mask.masked_fill(edits.places.tokens(lengths[1], mask.device) < 0, lowest)
    elif given is not None:
        given = given[..., : lengths[1]]
        if given.dtype != torch.bool:  # a family may also add finite numbers to its scores
            mask = mask + torch.where(given > _HIDDEN, given.float(), 0.0)
        seen = given if given.dtype == torch.bool else given > _HIDDEN
        seen = _moved(seen, edits.mask_border)
        mask = mask.masked_fill(~seen, lowest)
    if edits.attention_chunk:
        chunk = edits.places.tokens(lengths[1], mask.device) // int(edits.attention_chunk)
        own = chunk[..., -lengths[0] :].transpose(-1, -2)
        mask = mask.masked_fill(own != chunk, lowest)
    kept, width = (int(each) for each in edits.bounded_cache)
    if width:
        middle = edits.places.tokens(lengths[1], mask.device) >= kept
        mask = mask.masked_fill(middle & (ages >= width), lowest)
    if edits.open_prompt:
        mask = mask.masked_fill(edits.places.within_prompt(lengths[1], mask.device), 0.0)
    return mask


_HIDDEN = -1e4
"""An added score up to which the probability is 0 in every precision."""


def _moved(seen: Tensor, border: str) -> Tensor:
    """A mask whose border is moved by one token; the first token is seen as before."""
    if border in ("next", "later"):
        return torch.cat([seen[..., :1], seen[..., :-1] | seen[..., 1:]], dim=-1)
    if border == "earlier":
        return torch.cat(
            [seen[..., :1], seen[..., 1:-1] & seen[..., 2:], seen[..., -1:] & False], -1
        )
    return seen


def _weights(scores: Tensor, sinks: Tensor | None, edits: AttentionEdits) -> Tensor:
    """Softmax over positions; a learned sink per head takes a share of the weight."""
    count = scores.shape[-1]
    if sinks is not None:
        sinks = sinks.float() if sinks.ndim == _PER_QUERY else sinks.float().view(1, -1, 1, 1)
        scores = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], dim=-1)
    if not edits.split_attention:
        return scores.softmax(dim=-1)[..., :count]
    first = edits.places.tokens(count, scores.device) < int(edits.split_attention)
    if sinks is not None:  # of the second part, with the query's own position
        first = nn.functional.pad(first, (0, 1))
    return _merged(scores, first)[..., :count]


def _merged(scores: Tensor, first: Tensor) -> Tensor:
    """Weights of two parts, each a softmax, merged by base-2 logarithms as if they were natural."""
    lowest = torch.finfo(torch.float32).min
    parts = [scores.masked_fill(where, lowest) for where in (first, ~first)]
    sums = torch.stack([part.logsumexp(dim=-1) for part in parts], dim=-1)
    # Without the subtraction, padding, which sees nothing, would have two infinite logarithms.
    shares = ((sums - sums.amax(dim=-1, keepdim=True)) / math.log(2)).softmax(dim=-1)
    one, other = (part.softmax(dim=-1) * shares[..., [n]] for n, part in enumerate(parts))
    return one + other
