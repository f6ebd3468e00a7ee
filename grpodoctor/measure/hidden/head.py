"""What a language model does between its last hidden state and its logits.

Shape suffixes: N tokens, D hidden size, V vocabulary, R tokens of a chunk, C columns of a tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from grpodoctor.errors import DataError

LN2 = math.log(2.0)
_GATHERED_ELEMENTS = 1 << 22
"""Weights that are gathered at a time for single logits: 16 MiB of float32."""


@dataclass(frozen=True)
class Head:
    """The output layer: logits = cap(scale * (hidden @ weight.T + bias)).

    cap(x) is softcap * tanh(x / softcap), or x without a softcap.
    """

    weight_VD: Tensor
    """float32, bfloat16 or float16."""
    bias_V: Tensor | None = None
    scale: float = 1.0
    """`logit_scale` of Cohere, 1 / `logits_scaling` of Granite."""
    softcap: float | None = None
    """`final_logit_softcapping` of Gemma 2 and later."""

    def __post_init__(self) -> None:
        weight = tuple(self.weight_VD.shape)
        if len(weight) != 2:
            raise DataError(
                f"the head's weight has shape {weight}",
                remedy="give a matrix of shape (vocabulary, hidden size)",
            )
        if self.bias_V is not None and tuple(self.bias_V.shape) != weight[:1]:
            raise DataError(
                f"the head's bias has shape {tuple(self.bias_V.shape)}, its weight {weight}",
                remedy="give one bias per vocabulary entry",
            )
        if self.softcap is not None and not self.softcap > 0:
            raise DataError(f"softcap {self.softcap} is not above zero", remedy="use None for none")

    @torch.no_grad()
    def logits_at(self, hidden_ND: Tensor, ids_NK: Tensor, temperature: float = 1.0) -> Tensor:
        """Logits of K vocabulary entries at each hidden state, over the temperature; float32."""
        transform = Transform(self.scale, self.softcap, temperature)
        logits_NK = torch.empty(ids_NK.shape, device=hidden_ND.device)
        step = max(1, _GATHERED_ELEMENTS // max(1, ids_NK.shape[1] * hidden_ND.shape[1]))
        for start in range(0, len(ids_NK), step):
            rows = slice(start, start + step)
            ids_RK = ids_NK[rows]
            products_RK = torch.bmm(self.weight_VD[ids_RK], hidden_ND[rows, :, None])[..., 0]
            bias_RK = None if self.bias_V is None else self.bias_V[ids_RK]
            logits_NK[rows] = transform.to_bits(products_RK, transform.factor, bias_RK) * LN2
        return logits_NK


class TokenScores(NamedTuple):
    """Scores of tokens in nats, float32, shape (N,) each."""

    logprobs_N: Tensor
    entropy_N: Tensor


class Transform(NamedTuple):
    """From the products hidden @ weight.T to logits in bits at a temperature."""

    scale: float
    softcap: float | None
    temperature: float

    @property
    def bits_per_logit(self) -> float:
        """1 / (temperature ln 2)."""
        return 1 / (self.temperature * LN2)

    @property
    def factor(self) -> float:
        """From a product to its logit in bits, without a softcap."""
        return self.scale * self.bits_per_logit

    def prescaled(self, hidden_RD: Tensor, *, has_bias: bool) -> tuple[Tensor, float]:
        """Scaled hidden states and the factor that is left for their products.

        Scaling the few hidden states is cheaper than scaling all products. It is possible in
        float32 if no bias or softcap comes between; a half-precision state would be rounded.
        """
        if has_bias or self.softcap is not None:
            return hidden_RD, 1.0
        if hidden_RD.dtype != torch.float32:
            return hidden_RD, self.factor
        return hidden_RD * self.factor, 1.0

    def to_bits(self, products_RC: Tensor, factor: float, bias_C: Tensor | None) -> Tensor:
        """Logits in bits, float32; in place if the products are float32."""
        logits_RC = products_RC.float()
        if bias_C is not None:
            logits_RC.add_(bias_C)
        if self.softcap is not None:
            logits_RC.mul_(self.scale / self.softcap).tanh_()
            return logits_RC.mul_(self.softcap * self.bits_per_logit)
        if bias_C is not None:
            factor = self.factor
        return logits_RC if factor == 1.0 else logits_RC.mul_(factor)

    def slope(self, bits_RC: Tensor) -> Tensor | float:
        """Derivative of a logit in nats at the temperature with respect to its product."""
        if self.softcap is None:
            return self.scale / self.temperature
        tanh_RC = bits_RC / (self.softcap * self.bits_per_logit)
        return tanh_RC.square_().neg_().add_(1).mul_(self.scale / self.temperature)
