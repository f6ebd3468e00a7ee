"""Edits of one phase: only while the prompt is read, or only while the response is generated.

Engines read a prompt in one pass and generate token by token with a cache. A fault of one of both
kernels acts in its phase alone, which no pass over the whole sequence shows. So the sequences are
scored along the path on which they were generated.

Shape suffixes: B sequences, L positions of the longest one, W positions of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from contract import InapplicableError, Response
from torch import Tensor, nn

from hf.what_if.attention import Places

Edit = tuple[str, Any]
GENERATED, IN_PROMPT, IN_RESPONSE = "generated", "in_prompt", "in_response"
IN_PREFIX, CACHE_HOLE = "in_prefix", "cache_hole"
PHASES = (GENERATED, IN_PROMPT, IN_PREFIX, IN_RESPONSE, CACHE_HOLE)
"""Edits `true`; `[name, value]` of an edit that acts in that phase only; and the number of slots of
the cache that nothing is written to after the prompt. The prefix is the prompt without its last
token, which an engine reads again if all others are in its cache."""
_STATES = ("conv_states", "recurrent_states")
"""What the cache of a recurrent layer has."""


Step = Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]]
"""One pass of the trunk: from new tokens (B, W), 1 for each real token so far, and the cache, to
the output for the new tokens and the cache after them."""


class Recorded(Protocol):
    """The routers' choices of a pass."""

    def taken(self) -> list[Tensor | None]:
        """What the latest pass recorded, token by token."""

    def put(self, recorded: Sequence[Tensor | None]) -> None:
        """Replace it by that of several passes."""


@dataclass(frozen=True)
class Phases:
    """Scores sequences in two phases with the edits of each."""

    prompt: tuple[Edit, ...]
    response: tuple[Edit, ...]
    computing: Callable[[Sequence[Edit]], AbstractContextManager[None]]
    """Computes with edits inside a block."""
    places: Places
    """Learns where the padding of a pass is."""
    again: int = 0
    """Tokens at the end of the prompt that are read in the second phase."""
    hole: int = 0
    """Slots of zeros between both phases in the cache, which are seen and have positions."""

    @classmethod
    def of(
        cls,
        edits: Sequence[Edit],
        computing: Callable[[Sequence[Edit]], AbstractContextManager[None]],
        places: Places,
    ) -> Phases | None:
        """The phases that edits name; None if all edits act everywhere."""
        if not any(name in PHASES for name, _ in edits):
            return None
        inner = {
            phase: tuple((str(value[0]), value[1]) for name, value in edits if name == phase)
            for phase in (IN_PROMPT, IN_PREFIX, IN_RESPONSE)
        }
        if inner[IN_PROMPT] and inner[IN_PREFIX]:
            raise InapplicableError("the first phase is the prompt or its prefix")
        first = (*inner[IN_PROMPT], *inner[IN_PREFIX])
        again = int(bool(inner[IN_PREFIX]))
        hole = int(dict(edits).get(CACHE_HOLE, 0))
        return cls(first, inner[IN_RESPONSE], computing, places, again, hole)

    def hidden(
        self,
        step: Step,
        responses: Sequence[Response],
        ids_BL: Tensor,
        tape: Recorded | None,
        cache: Any = None,
    ) -> Tensor:
        """The trunk's output for sequences that are padded on the right.

        Args:
            step: computes it for some positions.
            responses: the rows.
            ids_BL: their tokens.
            tape: the routers' choices, or None.
            cache: an empty cache; None lets the model create one.
        """
        prompts = [len(each.prompt_ids) - self.again for each in responses]
        if min(prompts) < 1:
            raise InapplicableError("a prompt has no prefix")
        rest = [len(each.response_ids) - 1 + self.again for each in responses]
        layout = _Layout(prompts, rest, ids_BL)
        parts: list[Tensor] = []
        records: list[list[Tensor | None]] = []

        def note(hidden_BWH: Tensor) -> None:
            parts.append(hidden_BWH)
            records.append([] if tape is None else tape.taken())

        ids_BW, seen_BW = layout.prompts()
        with self.computing(self.prompt), self.places.padded(seen_BW):
            hidden_BWH, cache = step(ids_BW, seen_BW, cache)
            note(hidden_BWH)
        if self.hole:
            _leave_hole(cache, self.hole)
            seen_BW = nn.functional.pad(seen_BW, (0, self.hole), value=1)
        rest_BW = layout.responses()
        width = 1 if _has_states(cache) else max(rest_BW.shape[1], 1)
        with self.computing(self.response):
            for ids_BW in torch.split(rest_BW, width, dim=1) if rest_BW.shape[1] else ():
                seen_BW = nn.functional.pad(seen_BW, (0, ids_BW.shape[1]), value=1)
                with self.places.padded(seen_BW):
                    hidden_BWH, cache = step(ids_BW, seen_BW, cache)
                note(hidden_BWH)
        if tape is not None:
            tape.put([layout.flattened(list(each)) for each in zip(*records, strict=True)])
        return layout.joined(parts)


@dataclass(frozen=True)
class _Layout:
    """Places of prompts or prefixes, padded on the left, and of what follows them."""

    prompts_B: Sequence[int]
    rest_B: Sequence[int]
    """Further tokens that the model reads: all but the last."""
    ids_BL: Tensor

    def prompts(self) -> tuple[Tensor, Tensor]:
        """The prompts' tokens, and 1 where there is no padding."""
        ids_BW = self.ids_BL.new_zeros(len(self.prompts_B), max(self.prompts_B))
        seen_BW = torch.zeros_like(ids_BW)
        for row, count in enumerate(self.prompts_B):
            ids_BW[row, -count:] = self.ids_BL[row, :count]
            seen_BW[row, -count:] = 1
        return ids_BW, seen_BW

    def responses(self) -> Tensor:
        """The responses' tokens; shorter ones end with padding, which no token before it sees."""
        ids_BW = self.ids_BL.new_zeros(len(self.rest_B), max(self.rest_B))
        for row, (start, count) in enumerate(zip(self.prompts_B, self.rest_B, strict=True)):
            ids_BW[row, :count] = self.ids_BL[row, start : start + count]
        return ids_BW

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """What the passes returned, in the places of sequences that are padded on the right."""
        first, rest = parts[0], torch.cat([*parts[1:], parts[0][:, :0]], dim=1)
        whole = first.new_zeros(*self.ids_BL.shape, *first.shape[2:])
        for row, (start, count) in enumerate(zip(self.prompts_B, self.rest_B, strict=True)):
            whole[row, :start] = first[row, first.shape[1] - start :]
            whole[row, start : start + count] = rest[row, :count]
        return whole

    def flattened(self, parts: Sequence[Tensor | None]) -> Tensor | None:
        """The same of columns by token; None unless all passes have them."""
        known = [
            part.reshape(len(self.prompts_B), -1, *part.shape[1:])
            for part in parts
            if part is not None
        ]
        return self.joined(known).flatten(0, 1) if len(known) == len(parts) else None


def _leave_hole(cache: Any, slots: int) -> None:
    """Append slots of zeros to all keys and values."""
    layers = list(getattr(cache, "layers", ()))
    if not layers or not all(isinstance(getattr(e, "keys", None), Tensor) for e in layers):
        raise InapplicableError("the cache of this model has other layers than keys and values")
    for layer in layers:
        layer.keys = nn.functional.pad(layer.keys, (0, 0, 0, slots))
        layer.values = nn.functional.pad(layer.values, (0, 0, 0, slots))


def _has_states(cache: Any) -> bool:
    """Whether a layer keeps a state, which only a pass of one token continues."""
    layers = getattr(cache, "layers", None)
    if layers is None:
        raise InapplicableError("the cache of this model cannot be continued")
    return any(hasattr(layer, name) for layer in layers for name in _STATES)
