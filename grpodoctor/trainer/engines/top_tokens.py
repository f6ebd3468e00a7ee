"""Collects a sampler's most likely tokens, for losses that compare distributions."""

from __future__ import annotations

import torch
from torch import Tensor

from grpodoctor.trainer.samples import TopK


class TopTokenBuffer:
    """Collects the most likely tokens while responses are sampled.

    Temperature 0 counts as 1, as for the sampled tokens.
    """

    def __init__(
        self, rows: int, width: int, count: int, temperature: float, device: torch.device
    ) -> None:
        self._temperature = temperature or 1.0
        self._ids_BTK = torch.zeros(rows, width, count, dtype=torch.long, device=device)
        self._logprobs_BTK = torch.zeros(rows, width, count, device=device)

    def store(self, logits_RV: Tensor, rows_R: Tensor, index: int) -> None:
        """Store the most likely tokens of some rows at one position."""
        logprobs_RV = torch.log_softmax(logits_RV / self._temperature, dim=-1)
        top = logprobs_RV.topk(self._ids_BTK.shape[-1], dim=-1)
        self._ids_BTK[rows_R, index] = top.indices
        self._logprobs_BTK[rows_R, index] = top.values

    def top(self, length: int) -> TopK:
        """The collected tokens of the first `length` positions."""
        return TopK(self._ids_BTK[:, :length].clone(), self._logprobs_BTK[:, :length].clone())
