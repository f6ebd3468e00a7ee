"""The likeliest tokens of a sampler at each position, for the losses that compare distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class TopK(NamedTuple):
    """The K likeliest tokens under the sampling distribution; zeros outside the mask."""

    ids_BTK: Tensor
    """int64."""
    logprobs_BTK: Tensor

    def rows(self, indices: Tensor) -> TopK:
        """Those of the rows at `indices`, in that order."""
        return TopK(self.ids_BTK[indices], self.logprobs_BTK[indices])

    def to(self, device: torch.device) -> TopK:
        """The same on a device."""
        return TopK(*(each.to(device) for each in self))

    def widened(self, right: int) -> TopK:
        """The same with so many more columns of padding."""
        pad = torch.nn.functional.pad
        return TopK(*(pad(each, (0, 0, 0, right)) for each in self))


def concatenate_top(parts: Sequence[TopK | None]) -> TopK | None:
    """The rows of all parts, equally wide; None where one of them does not tell."""
    told = [part for part in parts if part is not None]
    if len(told) < len(parts):
        return None
    return TopK(*(torch.cat(columns) for columns in zip(*told, strict=True)))


class TopBook:
    """Notes the likeliest tokens while responses are drawn.

    Args:
        rows: responses.
        width: tokens of the longest that may be drawn.
        count: likeliest tokens at each position.
        temperature: divides the logits; 0 stands for 1, as for what is sampled.
        device: of the logits.
    """

    def __init__(
        self, rows: int, width: int, count: int, temperature: float, device: torch.device
    ) -> None:
        self._temperature = temperature or 1.0
        self._ids_BTK = torch.zeros(rows, width, count, dtype=torch.long, device=device)
        self._logprobs_BTK = torch.zeros(rows, width, count, device=device)

    def note(self, logits_RV: Tensor, rows_R: Tensor, index: int) -> None:
        """Note those of some rows at one position."""
        logprobs_RV = torch.log_softmax(logits_RV / self._temperature, dim=-1)
        likeliest = logprobs_RV.topk(self._ids_BTK.shape[-1], dim=-1)
        self._ids_BTK[rows_R, index] = likeliest.indices
        self._logprobs_BTK[rows_R, index] = likeliest.values

    def top(self, length: int) -> TopK:
        """What was noted, of the first `length` positions."""
        return TopK(self._ids_BTK[:, :length].clone(), self._logprobs_BTK[:, :length].clone())
