"""A model's weights under the names that a saved checkpoint uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from grpodoctor.trainer.model.lora import merged_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model under the names of a saved checkpoint.

    Tied weights appear once. Adapters are merged in.
    """
    weights = dict(merged_weights(model))
    all_names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for tied in all_names - {name for name, _ in model.named_parameters()}:
        weights.pop(tied, None)
    for name, tensor in _renamed(model, weights).items():
        yield name, tensor.detach()


def _renamed(model: PreTrainedModel, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo the conversions that transformers does on loading, such as fusing a layer's experts."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before transformers 5, modules had the names of the checkpoint
        return weights
    reverted: dict[str, Tensor] = revert_weight_conversion(model, weights)
    return reverted
