"""The likeliest tokens of a sampler at each position, for the losses that compare distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.samples import TopK


class TopTokenBuffer:
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
