"""Fake quantisation: weights rounded to what a low-precision engine could hold, kept as floats."""

from __future__ import annotations

import torch
from torch import Tensor


def fake_quantise(weight_OI: Tensor, bits: int, group_size: int = 128) -> Tensor:
    """Round to signed integers of `bits` bits with one scale per output channel and input group.

    Symmetric, round to nearest, the scale set by the largest magnitude, as in weight-only
    post-training quantisation. A layer narrower than a group has one scale per output channel.

    Args:
        weight_OI: a linear layer's weight, outputs by inputs.
        bits: 2 to 8.
        group_size: inputs that share a scale.

    Returns:
        The dequantised weight, same shape and dtype.
    """
    largest = 2 ** (bits - 1) - 1
    groups = torch.split(weight_OI.float(), group_size, dim=1)
    rounded = []
    for group in groups:
        scale = group.abs().amax(dim=1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
        scale = scale / largest
        rounded.append((group / scale).round_().clamp_(-largest, largest) * scale)
    return torch.cat(rounded, dim=1).to(weight_OI.dtype)
