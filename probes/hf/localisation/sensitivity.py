"""What the log-probabilities of a few tokens of each response do under changes at each place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from contract import Response
from torch import Tensor

from hf.localisation.changes import effects
from hf.localisation.kernels import Kernels
from hf.localisation.passes import Batch, GradientPasses, chosen_tokens, token_indices
from hf.localisation.places import NORMS, Place, places_of

_FEW_LAYERS = 6
"""Layers up to which each block of each layer is changed by itself, not by gradients alone."""


class Sensitivity(GradientPasses):
    """Measures a model."""

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
        batches = self._batches(responses, chosen)
        with self._gradients_allowed():
            return self._arrays(batches, responses, chosen)

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
