"""The distribution that the built-in engine samples from: temperature, top-k and top-p."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Distribution(NamedTuple):
    """How logits become a sampling distribution."""

    temperature: float
    """Divides the logits; 0 selects the most likely token."""
    top_p: float = 1.0
    """Keep the most likely tokens that together have this probability; 1 keeps all."""
    top_k: int = 0
    """Keep this many most likely tokens; 0 keeps all."""

    def truncated(self, logits_RV: Tensor) -> Tensor:
        """The logits with -inf for the tokens that top-k, then top-p, leave out.

        The most likely token always stays. Ties at the limit of top-k all stay.
        """
        if 0 < self.top_k < logits_RV.shape[1]:
            least_R1 = logits_RV.topk(self.top_k, dim=-1).values[:, -1:]
            logits_RV = logits_RV.masked_fill(logits_RV < least_R1, -math.inf)
        if self.top_p < 1 and self.temperature > 0:
            shares_RV = torch.softmax(logits_RV.double() / self.temperature, dim=-1)
            sorted_RV, order_RV = shares_RV.sort(dim=-1, descending=True, stable=True)
            left_out_RV = sorted_RV.cumsum(dim=-1) - sorted_RV >= self.top_p
            left_out_RV = torch.zeros_like(left_out_RV).scatter(1, order_RV, left_out_RV)
            logits_RV = logits_RV.masked_fill(left_out_RV, -math.inf)
        return logits_RV
