"""A model's output head: the layer whose logits are the largest tensor of a forward pass.

The head runs inside the model's own forward pass, because FSDP gathers its weights only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from grpodoctor.measure.hidden import Head

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LARGEST_PRODUCT = 64.0
_SMALLEST_PRODUCT = 2.0**-10
"""Nearly proportional to its logit, whatever the softcap."""


class OutputHead(NamedTuple):
    """A linear layer, and what the model does to its products afterwards."""

    layer: nn.Linear
    scale: float
    softcap: float | None

    @property
    def vocabulary(self) -> int:
        """Number of logits per token."""
        return self.layer.out_features

    def tensors(self) -> Head:
        """The layer's weights; with FSDP they are whole only inside a forward pass."""
        return Head(self.layer.weight, self.layer.bias, self.scale, self.softcap)

    @contextmanager
    def reading(self, read: Callable[[Tensor], object]) -> Iterator[None]:
        """Pass the hidden states of each forward pass to `read`, and form no logits.

        The model's logits have shape (B, 0, V).
        """
        form = self.layer.forward

        def forward(hidden_BTD: Tensor) -> Tensor:
            read(hidden_BTD)
            return form(hidden_BTD[:, :0])

        with _replaced(self.layer, forward):
            yield


class _Transform(NamedTuple):
    scale: float
    softcap: float | None


_transforms: WeakKeyDictionary[nn.Module, _Transform | None] = WeakKeyDictionary()


def output_head(model: PreTrainedModel) -> OutputHead | None:
    """The output head of a model; None if it is not a linear layer with a scale and a softcap."""
    layer = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of transformers
    if type(layer) is not nn.Linear:
        return None
    if model not in _transforms:
        _transforms[model] = _measured_transform(model, layer)
    transform = _transforms[model]
    return None if transform is None else OutputHead(layer, *transform)


@torch.no_grad()
def _measured_transform(model: PreTrainedModel, layer: nn.Linear) -> _Transform | None:
    """What the model makes of the head's products, from one pass without its layers.

    The code of each family decides that, and no common setting describes it.
    """
    trunk = model.base_model
    if trunk is model:
        return None
    count, device = layer.out_features, layer.weight.device
    products_V = torch.linspace(-_LARGEST_PRODUCT, _LARGEST_PRODUCT, count, device=device)
    products_V[0] = _SMALLEST_PRODUCT
    hidden_11D = torch.zeros(1, 1, layer.in_features, dtype=layer.weight.dtype, device=device)
    ids_11 = torch.zeros(1, 1, dtype=torch.long, device=device)
    with (
        _replaced(trunk, lambda *_, **__: _trunk_output(hidden_11D)),
        _replaced(layer, lambda _: products_V[None, None].clone()),
    ):
        logits_V = model(input_ids=ids_11, use_cache=False).logits.flatten().float()
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return _fitting_transform(products_V, logits_V, cap)


def _trunk_output(hidden_11D: Tensor) -> object:
    from transformers.modeling_outputs import MoeModelOutputWithPast

    return MoeModelOutputWithPast(last_hidden_state=hidden_11D)


def _fitting_transform(
    products_V: Tensor, logits_V: Tensor, cap: float | None
) -> _Transform | None:
    """The scale, and the cap if it is needed, that turn the products into the logits."""
    if logits_V.shape != products_V.shape:
        return None
    scale = float(logits_V[0] / products_V[0])
    for softcap in (None, cap):
        scaled_V = products_V * scale
        capped_V = scaled_V if softcap is None else softcap * torch.tanh(scaled_V / softcap)
        if torch.allclose(capped_V, logits_V, rtol=1e-5, atol=1e-6):
            return _Transform(scale, softcap)
    return None


@contextmanager
def _replaced(module: nn.Module, forward: Callable[..., object]) -> Iterator[None]:
    """Replace a module's forward pass; its hooks stay."""
    own = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
