"""Copies of a trainer's tensors as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import DataError


def to_host(values: object) -> NDArray[Any]:
    """A copy that the training cannot change any more.

    A tensor is detached and copied to the CPU. bfloat16 becomes float32, because numpy has no such
    type. Neither the tensor nor the state of any random number generator changes.

    Args:
        values: a tensor, an array, a number, or a nested list of numbers.

    Raises:
        DataError: if `values` is spread over several ranks, or is none of these.
    """
    if hasattr(values, "detach"):
        return _tensor_to_host(values)
    array = np.array(values)
    if array.dtype == object:
        raise DataError("the values have rows of different lengths", remedy="pad them")
    return array


def _tensor_to_host(tensor: Any) -> NDArray[Any]:
    if hasattr(tensor, "full_tensor"):
        raise DataError(
            "the tensor is distributed over several ranks", remedy="pass this rank's own rows"
        )
    tensor = tensor.detach()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    array: NDArray[Any] = tensor.to(device="cpu", copy=True).numpy()
    return array


def masked_means(values_BT: NDArray[Any], mask_BT: NDArray[Any]) -> NDArray[Any]:
    """The mean of each row over its mask, shape (B,); 0 for a row without any entry."""
    totals_B: NDArray[Any] = np.where(mask_BT, values_BT, 0).sum(axis=1)
    means_B: NDArray[Any] = totals_B / np.maximum(mask_BT.sum(axis=1), 1)
    return means_B
