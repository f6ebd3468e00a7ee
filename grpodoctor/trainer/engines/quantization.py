"""Fake quantization: rounds weights to the values of a low-precision format and keeps floats."""

from __future__ import annotations

import torch
from torch import Tensor


def fake_quantize(weight_OI: Tensor, bits: int) -> Tensor:
    """Round to signed integers of `bits` bits with one scale for the whole matrix.

    Rounding is symmetric and to nearest; the largest magnitude sets the scale. Real engines use one
    scale per channel or per group of 128 inputs. A matrix of the built-in model is smaller than
    many such groups. One scale gives it the error of large models at four bits: |Δp| is 0.03 to
    0.05 on average at 4 bits, and 0.001 to 0.002 at 8.

    Returns the dequantized weight, same shape and dtype; `bits` is 2 to 8.

    Returns:
        The dequantized weight, same shape and dtype.
    """
    largest = 2 ** (bits - 1) - 1
    weights = weight_OI.float()
    scale = weights.abs().amax().clamp_(min=torch.finfo(torch.float32).tiny) / largest
    rounded: Tensor = (weights / scale).round_().clamp_(-largest, largest) * scale
    return rounded.to(weight_OI.dtype)
