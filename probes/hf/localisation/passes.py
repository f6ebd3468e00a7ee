"""Passes over some tokens of each response, with gradients of their log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from contract import InapplicableError, Response
from torch import Tensor

_BATCH_TOKENS = 2048
"""Padded tokens of a pass whose activations are kept, at most."""
_FEWEST_TOKENS = 256
_BYTES, _PER_TOKEN = 4e9, 160
"""Memory for the activations of a pass, and their bytes per token, layer and hidden unit: about
forty numbers of four bytes."""
FAILURES = (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError)
"""What code of a model raises that does not support a pass."""


@dataclass
class Batch:
    """Responses of one pass, and the tokens of each that are measured."""

    ids_BL: Tensor
    rows_T: Tensor
    places_T: Tensor
    """The position that predicts each token."""
    targets_T: Tensor
    columns: list[Tensor]
    """Indices of tokens, at most one of each row."""


class GradientPasses:
    """Forward passes of a model whose log-probabilities have gradients.

    Args:
        model: a causal language model.
        device: of its inputs.
        forward: from ids, (B, L), to the logits at positions of the flattened rows.
        temperature: by which the logits are divided.
    """

    def __init__(
        self,
        model: Any,
        device: torch.device,
        forward: Callable[[Tensor, Tensor], Tensor],
        temperature: float,
    ) -> None:
        self._model, self._device, self._forward = model, device, forward
        self._temperature = temperature or 1.0

    def _logits(self, batch: Batch) -> Tensor:
        return self._scaled(self._model_logits(batch))

    def _model_logits(self, batch: Batch) -> Tensor:
        """The logits as the model returns them, (T, V): a trace follows the model alone."""
        flat = batch.rows_T * batch.ids_BL.shape[1] + batch.places_T
        return self._forward(batch.ids_BL, flat)

    def _scaled(self, logits_TV: Tensor) -> Tensor:
        return logits_TV.float() / self._temperature

    def _batches(self, responses: Sequence[Response], chosen: list[np.ndarray]) -> list[Batch]:
        return list(_batches_of(responses, chosen, self._device, _tokens_of_pass(self._model)))

    @contextmanager
    def _gradients_allowed(self) -> Iterator[None]:
        """Gradients begin at the embeddings.

        Raises:
            InapplicableError: if the model allows none.
        """
        try:
            with _without_weights(self._model):
                yield
        except torch.OutOfMemoryError:
            raise  # the engine names it
        except FAILURES as error:
            what = " ".join(str(error).split())[:160]
            raise InapplicableError(f"the model allows no gradients: {what}") from error


def chosen_tokens(responses: Sequence[Response], tokens: int) -> list[np.ndarray]:
    """Positions of each response's tokens that are measured, at equal distances."""
    each = max(1, tokens // max(len(responses), 1))
    return [
        np.unique(np.linspace(0, count - 1, min(each, count)).round().astype(int))
        if (count := len(response.response_ids))
        else np.zeros(0, int)
        for response in responses
    ]


def _tokens_of_pass(model: Any) -> int:
    """Tokens of a pass, so that the activations of a large model fit into memory."""
    config = model.config.get_text_config()
    units = getattr(config, "hidden_size", 1) * getattr(config, "num_hidden_layers", 1)
    return max(_FEWEST_TOKENS, min(_BATCH_TOKENS, int(_BYTES / (_PER_TOKEN * units))))


def _batches_of(
    responses: Sequence[Response], chosen: list[np.ndarray], device: torch.device, tokens: int
) -> Iterator[Batch]:
    """Responses in the given order, in passes of so many tokens, or of one response."""
    rows: list[int] = []
    width = 0
    for number, response in enumerate(responses):
        if not len(response.response_ids):
            continue
        length = len(response.prompt_ids) + len(response.response_ids) - 1
        if rows and max(width, length) * (len(rows) + 1) > tokens:
            yield _batch([responses[i] for i in rows], [chosen[i] for i in rows], device)
            rows, width = [], 0
        rows.append(number)
        width = max(width, length)
    if rows:
        yield _batch([responses[i] for i in rows], [chosen[i] for i in rows], device)


def _batch(
    responses: Sequence[Response], chosen: Sequence[np.ndarray], device: torch.device
) -> Batch:
    inputs = [[*r.prompt_ids, *r.response_ids][:-1] for r in responses]
    width = max(map(len, inputs))
    tokens = [(row, place) for row, places in enumerate(chosen) for place in places.tolist()]
    columns: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    for index, (row, _) in enumerate(tokens):
        columns.setdefault(seen.get(row, 0), []).append(index)
        seen[row] = seen.get(row, 0) + 1
    starts = [len(r.prompt_ids) - 1 for r in responses]
    return Batch(
        ids_BL=torch.tensor([ids + [0] * (width - len(ids)) for ids in inputs], device=device),
        rows_T=torch.tensor([row for row, _ in tokens], device=device),
        places_T=torch.tensor([starts[row] + place for row, place in tokens], device=device),
        targets_T=torch.tensor(
            [responses[row].response_ids[place] for row, place in tokens], device=device
        ),
        columns=[torch.tensor(each, device=device) for each in columns.values()],
    )


def token_indices(
    responses: Sequence[Response], chosen: list[np.ndarray], batches: Sequence[Batch]
) -> np.ndarray:
    """The index of each measured token among all tokens of the responses, in measured order."""
    firsts = np.cumsum([0, *(len(r.response_ids) for r in responses)])
    every = np.concatenate([firsts[n] + places for n, places in enumerate(chosen)])
    found, first = [], 0
    for batch in batches:
        own = every[first : first + len(batch.rows_T)]
        found.append(own[torch.cat(batch.columns).cpu().numpy()])
        first += len(batch.rows_T)
    return np.concatenate(found)


@contextmanager
def _without_weights(model: Any) -> Iterator[None]:
    """Gradients begin at the embeddings: those of the weights are not needed."""
    before = [(weight, weight.requires_grad) for weight in model.parameters()]
    for weight, _ in before:
        weight.requires_grad_(False)

    def begin(_module: Any, _inputs: Any, output: Tensor) -> Tensor | None:
        if not torch.is_grad_enabled():
            return None
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - a trace must not count this
            return output.detach().requires_grad_()

    handle = model.get_input_embeddings().register_forward_hook(begin)
    try:
        yield
    finally:
        handle.remove()
        for weight, needed in before:
            weight.requires_grad_(needed)
