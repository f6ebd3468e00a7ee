"""What the log-probabilities of a few tokens of each response do under changes at each place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from contract import InapplicableError, Response
from torch import Tensor

from hf.localisation.changes import effects
from hf.localisation.kernels import Kernels
from hf.localisation.places import NORMS, Place, places_of

_BATCH_TOKENS = 2048
"""Padded tokens of a pass whose activations are kept, at most."""
_FEWEST_TOKENS = 256
_BYTES, _PER_TOKEN = 4e9, 160
"""Memory for the activations of a pass, and their bytes per token, layer and hidden unit: about
forty numbers of four bytes."""
_FEW_LAYERS = 6
"""Layers up to which each block of each layer is changed by itself, not by gradients alone."""
_FAILURES = (RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError)


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


class Sensitivity:
    """Measures a model.

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

    def measured(self, responses: Sequence[Response], tokens: int) -> dict[str, np.ndarray]:
        """Arrays by name.

        - `token_N`: the index of each measured token among all tokens of the responses
        - `logprob_N`, `entropy_N`, and `spread_N`: the squared length of the gradient of the
          log-probability with respect to the logits
        - `features/PLACE`: kernel features of a place, (N, S)
        - `effects/KIND`: the effects of large changes, (C, N); KIND is a place's name, or the name
          of a kind of place for all layers, or `norms` for all norms

        Raises:
            InapplicableError: if the model allows no gradients.
        """
        chosen = chosen_tokens(responses, tokens)
        batches = list(batches_of(responses, chosen, self._device, tokens_of_pass(self._model)))
        try:
            with without_weights(self._model):
                return self._arrays(batches, responses, chosen)
        except _FAILURES as error:
            what = " ".join(str(error).split())[:160]
            raise InapplicableError(f"the model allows no gradients: {what}") from error

    def _arrays(
        self, batches: Sequence[Batch], responses: Sequence[Response], chosen: list[np.ndarray]
    ) -> dict[str, np.ndarray]:
        with torch.no_grad():
            places = places_of(self._model, lambda: self._logits(batches[0]))
            facts = [self._facts(batch) for batch in batches]
        kernels = Kernels(places)
        for batch in batches:
            kernels.add(partial(self._logprobs, batch), batch.rows_T, batch.columns)
        order = [torch.cat(batch.columns) for batch in batches]
        own = {
            name: torch.cat([each[name][at] for each, at in zip(facts, order, strict=True)])
            for name in facts[0]
        }
        arrays = {name: values.cpu().numpy() for name, values in own.items()}
        arrays["token_N"] = token_indices(responses, chosen, batches)
        arrays |= {f"features/{n}": f.numpy() for n, f in kernels.features().items()}

        def run() -> Tensor:
            with torch.no_grad():
                parts = [self._logprobs(b)[at] for b, at in zip(batches, order, strict=True)]
            return torch.cat(parts)

        return arrays | self._effects(places, run)

    def _effects(self, places: list[Place], run: Callable[[], Tensor]) -> dict[str, np.ndarray]:
        kinds: dict[str, list[Place]] = {}
        for place in places:
            kinds.setdefault(place.kind, []).append(place)
        count = 1 + max((place.layer or 0) for place in places)
        groups = {kind: of for kind, of in kinds.items() if len(of) > 1 or of[0].layer is None}
        if count <= _FEW_LAYERS:
            groups |= {place.name: [place] for place in places}
        found = {name: effects(self._model, of, run) for name, of in groups.items()}
        found[NORMS] = effects(self._model, places, run, norms=True)
        return {
            f"effects/{name}": torch.stack(list(each.values())).cpu().numpy()
            for name, each in found.items()
            if each
        }

    def _logits(self, batch: Batch) -> Tensor:
        width = batch.ids_BL.shape[1]
        flat = batch.rows_T * width + batch.places_T
        return self._forward(batch.ids_BL, flat).float() / self._temperature

    def _logprobs(self, batch: Batch) -> Tensor:
        logits_TV = self._logits(batch)
        own_T = logits_TV.gather(1, batch.targets_T[:, None])[:, 0]
        return own_T - logits_TV.logsumexp(dim=-1)

    def _facts(self, batch: Batch) -> dict[str, Tensor]:
        log_TV = torch.log_softmax(self._logits(batch), dim=-1)
        own_T = log_TV.gather(1, batch.targets_T[:, None])[:, 0]
        p_TV = log_TV.exp()
        spread_T = p_TV.square().sum(-1) + 1 - 2 * own_T.exp()
        entropy_T = -(p_TV * log_TV.clamp(min=-100)).sum(-1)
        return {"logprob_N": own_T, "entropy_N": entropy_T, "spread_N": spread_T}


def chosen_tokens(responses: Sequence[Response], tokens: int) -> list[np.ndarray]:
    """Positions of each response's tokens that are measured, at equal distances."""
    each = max(1, tokens // max(len(responses), 1))
    return [
        np.unique(np.linspace(0, count - 1, min(each, count)).round().astype(int))
        if (count := len(response.response_ids))
        else np.zeros(0, int)
        for response in responses
    ]


def tokens_of_pass(model: Any) -> int:
    """Tokens of a pass, so that the activations of a large model fit into memory."""
    config = model.config.get_text_config()
    units = getattr(config, "hidden_size", 1) * getattr(config, "num_hidden_layers", 1)
    return max(_FEWEST_TOKENS, min(_BATCH_TOKENS, int(_BYTES / (_PER_TOKEN * units))))


def batches_of(
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
def without_weights(model: Any) -> Iterator[None]:
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
