"""Keeps the trunk's outputs for edits that change logits alone.

A third of the edits of known kinds are biases, penalties and caps of logits. The trunk, which takes
nearly all of a pass, computes the same for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contract import Response
from torch import Tensor

_MOST_NUMBERS = 64_000_000
"""Numbers that are kept, of all outputs together."""


class TrunkOutputs:
    """The outputs of a model's trunk for some batches."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Tensor] = {}

    def of(
        self,
        edits: str | None,
        responses: Sequence[Response],
        ids_BL: Tensor,
        run: Callable[[], Tensor],
    ) -> Tensor:
        """The output for a batch.

        Args:
            edits: those that change the trunk, next to one of logits; None keeps nothing. Without
                an edit of logits, an engine that differs from run to run must show it.
            responses: the rows.
            ids_BL: their tokens.
            run: computes it.
        """
        if edits is None:
            return run()
        ends = tuple(len(each.prompt_ids) for each in responses)
        key = edits, ends, tuple(ids_BL.shape), ids_BL.cpu().numpy().tobytes()
        if key not in self._known:
            output_BLH = run()
            if sum(one.numel() for one in self._known.values()) > _MOST_NUMBERS:
                self._known.clear()
            if output_BLH.numel() > _MOST_NUMBERS:
                return output_BLH
            self._known[key] = output_BLH
        return self._known[key]

    def clear(self) -> None:
        """Free the outputs."""
        self._known.clear()
