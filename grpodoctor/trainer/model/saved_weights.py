"""A model's weights under the names that a saved checkpoint uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from grpodoctor.trainer.model.lora import merged_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model under the names that a saved checkpoint has.

    Tied ones come once, and adapters are merged in.
    """
    named = dict(merged_weights(model))
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for tied in every - {name for name, _ in model.named_parameters()}:
        named.pop(tied, None)
    for name, tensor in _renamed(model, named).items():
        yield name, tensor.detach()


def _renamed(model: PreTrainedModel, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo what transformers does on loading, such as fusing the experts of a layer."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before transformers 5 modules had the names of the checkpoint
        return weights
    reverted: dict[str, Tensor] = revert_weight_conversion(model, weights)
    return reverted
