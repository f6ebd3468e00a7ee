"""An engine that samples and scores with a transformers model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from contract import (
    PROCESSORS,
    InapplicableError,
    Processing,
    RefusalError,
    Response,
    Sampling,
)
from torch import Tensor

from hf.generation import Decoder
from hf.loading import Settings, load_tokenizer
from hf.localisation.first_order import FirstOrder
from hf.localisation.sensitivity import Sensitivity
from hf.logits import batches, chunk_rows
from hf.logits import readings as token_readings
from hf.replay import check_experts
from hf.routers import Routers
from hf.split_model import SplitModel
from hf.tokenizer import encoded
from hf.trunk_outputs import TrunkOutputs
from hf.what_if.altered import WhatIf
from hf.what_if.catalogue import what_ifs
from hf.what_if.numerics import OtherCheckpoints
from hf.what_if.processors import histories

Readings = dict[int, dict[str, np.ndarray]]
"""Columns by the index of the response."""


class Ranks(Protocol):
    """Divides scoring among several processes."""

    layout: dict[str, int]

    def share(self, batches: list[list[int]]) -> list[tuple[list[int], bool]]:
        """This rank's batches, as many as every other rank's; whether each counts or is padding."""

    def collect(self, readings: Readings) -> Readings:
        """The readings of all ranks, on the rank that writes."""

    def broadcast(self, ids: Tensor) -> Tensor:
        """The first rank's tokens."""

    def close(self) -> None:
        """Leave the process group."""


class SingleRank:
    """One process."""

    def __init__(self) -> None:
        self.layout: dict[str, int] = {}

    def share(self, batches: list[list[int]]) -> list[tuple[list[int], bool]]:
        """All batches."""
        return [(batch, True) for batch in batches]

    def collect(self, readings: Readings) -> Readings:
        """The readings, unchanged."""
        return readings

    def broadcast(self, ids: Tensor) -> Tensor:
        """The tokens, unchanged."""
        return ids

    def close(self) -> None:
        """There is no process group."""


class TransformersEngine:
    """A causal language model of transformers.

    Args:
        name: name of the program.
        path: the model as the user wrote it.
        model: the loaded model, on its device.
        settings: the settings it was loaded with.
        device: the device of its inputs.
        ranks: the processes that share the work; default: only this one.
    """

    def __init__(
        self,
        name: str,
        path: str,
        model: Any,
        settings: Settings,
        device: torch.device,
        ranks: Ranks | None = None,
    ) -> None:
        self._name, self._path, self._settings = name, path, settings
        self._model, self._device, self._ranks = model, device, ranks or SingleRank()
        self._split = SplitModel(model, device, settings.compute_dtype)
        self._routers = Routers(model)
        self._what_if = WhatIf(model, OtherCheckpoints(settings, model))
        self._trunks = TrunkOutputs()
        config = model.config.get_text_config()
        self._vocabulary = int(config.vocab_size)
        self._tokenizer = load_tokenizer(path, settings, self._vocabulary)
        self._context = int(getattr(config, "max_position_embeddings", None) or 2**31)
        self._ends = _end_ids(model, self._tokenizer)

    def describe(self) -> dict[str, Any]:
        """What the engine is; see `contract.Engine`."""
        return {
            "name": self._name,
            "version": transformers.__version__,
            "model": self._path,
            "dtype": self._settings.dtype,
            "device": str(self._device),
            "layout": self._ranks.layout,
            "vocab_size": self._vocabulary,
            "end_ids": sorted(self._ends),
            "begin_id": getattr(self._tokenizer, "bos_token_id", None),
            "context": self._context,
            "logprobs": "processed",
            "processors": list(PROCESSORS),
            "settings": self._facts(),
        }

    def _facts(self) -> dict[str, Any]:
        settings, config = self._settings, self._model.config
        chosen = ("autocast", "quantise", "quantise_only", "quantise_skip", "perturb", "weights")
        facts = {name: getattr(settings, name) for name in (*chosen, "weights_only")}
        return {name: value for name, value in facts.items() if value} | {
            "torch": torch.__version__,
            "architecture": type(self._model).__name__.removeprefix("FSDP"),
            "attention": getattr(config, "_attn_implementation", settings.attention),
            "batch_tokens": settings.tokens(self._device),
            "threads": torch.get_num_threads(),
            "router_layers": len(self._routers.modules),
            "experts": self._routers.experts,
        }

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        """Token ids of text with the tokenizer's special tokens; of messages in the template.

        Raises:
            RefusalError: if there is no tokenizer, or no chat template for messages.
        """
        if self._tokenizer is None:
            raise RefusalError(
                f"{self._path} has no tokenizer that fits its vocabulary",
                "give prompts as ids, or add tokenizer.json to it",
            )
        return [encoded(self._tokenizer, prompt) for prompt in prompts]

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """Responses with log-probabilities of the distribution they were sampled from."""
        for index, prompt in enumerate(prompts):
            self._check(f"prompt {index}", prompt, (), len(prompt) + 1)
        if min(sampling.samples, sampling.max_tokens) < 1 or sampling.temperature < 0:
            raise RefusalError("samples, max_tokens or temperature is too small", "raise it")
        decoder = Decoder(
            self._split,
            self._routers,
            self._ends,
            self._context,
            self._settings.batch_rows,
            self._ranks.broadcast,
        )
        with _memory_errors_refused():
            return decoder.draw(prompts, sampling, want)

    def what_ifs(self) -> list[dict[str, Any]]:
        """See `contract.AlterableEngine`."""
        return what_ifs(self._model)

    def altered(self, edits: Sequence[tuple[str, Any]]) -> AbstractContextManager[None]:
        """See `contract.AlterableEngine`."""
        return self._what_if.altered(edits)

    def sensitivities(
        self, responses: Sequence[Response], processing: Processing, tokens: int
    ) -> dict[str, np.ndarray]:
        """See `contract.SensitiveEngine`."""
        if self._ranks.layout:
            raise InapplicableError("a model that is divided over devices allows no gradients")

        measure = Sensitivity(
            self._model, self._device, self._with_gradients, processing.temperature
        )
        with _memory_errors_refused():
            return measure.measured(responses, tokens)

    def first_order(
        self, responses: Sequence[Response], processing: Processing, tokens: int
    ) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """See `contract.FirstOrderEngine`."""
        if self._ranks.layout:
            raise InapplicableError("a model that is divided over devices allows no gradients")
        measure = FirstOrder(
            self._model, self._device, self._with_gradients, processing.temperature
        )
        with _memory_errors_refused():
            return measure.measured(responses, tokens)

    def _with_gradients(self, ids_BL: Tensor, rows_T: Tensor) -> Tensor:
        """The logits at positions of the flattened rows."""
        self._split.gradients = torch.is_grad_enabled()
        try:
            hidden_BLH = self._split.hidden(ids_BL)
            return self._split.logits(hidden_BLH.flatten(0, 1)[rows_T])
        finally:
            self._split.gradients = False

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """The same responses with this model's log-probabilities."""
        return self._scored(responses, processing, want, replayed=False)

    def replay(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """The same with the experts of `extras["experts"]`; see `contract.ReplayEngine`.

        Raises:
            RefusalError: like `score`; also if the experts cannot be those of this model, or the
                weights of its routers are not a softmax.
        """
        routers = self._routers
        if not routers:
            raise RefusalError(f"{self._path} has no experts to replay", "score without replay")
        for response in responses:
            shape = (len(response.response_ids), len(routers.modules), routers.slots)
            experts = response.extras.get("experts")
            check_experts(_name(response), experts, shape, routers.experts)
        return self._scored(responses, processing, want, replayed=True)

    def _scored(
        self,
        responses: Sequence[Response],
        processing: Processing,
        want: Sequence[str],
        *,
        replayed: bool,
    ) -> list[Response]:
        originals, responses = responses, self._what_if.processors.read(responses)
        for response in responses:
            length = len(response.prompt_ids) + len(response.response_ids)
            self._check(_name(response), response.prompt_ids, response.response_ids, length)
        indices = [index for index, each in enumerate(responses) if len(each.response_ids)]
        lengths = [len(model_input(responses[index])) for index in indices]
        passes = batches(lengths, self._settings.tokens(self._device))
        readings: Readings = {}
        with _memory_errors_refused():
            for batch, counts in self._ranks.share([[indices[i] for i in own] for own in passes]):
                rows = [responses[index] for index in batch]
                values = self._score_batch(rows, processing, want, replayed=replayed)
                readings |= dict(zip(batch, values, strict=True)) if counts else {}
        return _with_readings(originals, self._ranks.collect(readings))

    def _check(
        self, name: str, prompt: Sequence[int], response: Sequence[int], length: int
    ) -> None:
        if not len(prompt):
            raise RefusalError(f"{name} has no prompt tokens", "give every prompt at least one")
        if length > self._context:
            raise RefusalError(
                f"{name} has {length} tokens, but the context of {self._path} is {self._context}",
                "remove it, or lower max_tokens",
            )
        invalid = [token for token in (*prompt, *response) if not 0 <= token < self._vocabulary]
        if invalid:
            raise RefusalError(
                f"{name} has the token id {invalid[0]}, but {self._path} has only "
                f"{self._vocabulary} tokens",
                "give both engines models with the same vocabulary",
            )

    def _score_batch(
        self,
        responses: Sequence[Response],
        processing: Processing,
        want: Sequence[str],
        *,
        replayed: bool,
    ) -> list[dict[str, np.ndarray]]:
        """Readings of some responses in one forward pass."""
        ids_BL, rows_N = right_padded(responses)
        targets = torch.cat([torch.as_tensor(response.response_ids) for response in responses])
        rows_N, ids_N = rows_N.to(self._device), targets.to(self._device)
        forced_NDK = _forced(responses, ids_BL, rows_N) if replayed else None
        wants_experts = "experts" in want
        with self._routers.watched(wants_experts, forced_NDK) as tape:
            positions_BL = self._what_if.processors.positions(responses, ids_BL)
            ids_BL = ids_BL.to(self._device)
            if self._what_if.phases is None:
                seen_BL = self._what_if.processors.mask(ids_BL)
                run = partial(self._split.hidden, ids_BL, positions_BL, seen_BL)
                whole = partial(self._what_if.hidden, run, responses, ids_BL)
                kept = None if tape is not None else self._what_if.trunk
                hidden_BLH = self._trunks.of(kept, responses, ids_BL, whole)
            else:
                step, cache = self._split.next_hidden, self._split.whole_cache()
                hidden_BLH = self._what_if.phases.hidden(step, responses, ids_BL, tape, cache)
        hidden_NH = hidden_BLH.flatten(0, 1)[rows_N]
        del hidden_BLH
        width = chunk_rows(self._vocabulary, self._device)
        parts = [
            token_readings(logits, ids, processing, want)
            for logits, ids in zip(
                self._logits(hidden_NH, rows_N, responses, width),
                torch.split(ids_N, width),
                strict=True,
            )
        ]
        columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if tape is not None and wants_experts:
            columns |= tape.readings(rows_N)
        return _by_response(columns, [len(response.response_ids) for response in responses])

    def _logits(
        self, hidden_NH: Tensor, rows_N: Tensor, responses: Sequence[Response], width: int
    ) -> Iterator[Tensor]:
        """The logits of chunks of `width` tokens, after the processors of a what-if edit."""
        parts = zip(torch.split(hidden_NH, width), torch.split(rows_N, width), strict=True)
        chunks = (self._what_if.logits(self._split.logits, *part) for part in parts)
        edits = self._what_if.processors
        if not edits.changes_logits:
            yield from chunks
            return
        past = histories(responses, width, self._vocabulary, self._device)
        for logits_NV, history in zip(chunks, past, strict=True):
            yield edits.processed(logits_NV, history, sorted(self._ends))

    def close(self) -> None:
        """Free the model."""
        self._split.close()
        self._trunks.clear()
        self._ranks.close()
        self._model = None


def _name(response: Response) -> str:
    return f"response {response.sample} to prompt {response.prompt}"


def _forced(responses: Sequence[Response], ids_BL: Tensor, rows_N: Tensor) -> Tensor:
    """Experts for every position of a pass, -1 where it predicts no response token."""
    parts = [torch.as_tensor(response.extras["experts"].astype(np.int64)) for response in responses]
    experts_NDK = torch.cat(parts).to(rows_N.device)
    forced = torch.full((ids_BL.numel(), *experts_NDK.shape[1:]), -1, device=rows_N.device)
    forced[rows_N] = experts_NDK
    return forced


def model_input(response: Response) -> list[int]:
    """The model's input: all tokens except the last, whose prediction is not needed."""
    return [*response.prompt_ids, *response.response_ids][:-1]


def right_padded(responses: Sequence[Response]) -> tuple[Tensor, Tensor]:
    """Ids (B, L), and flat indices (N,) of the positions that predict the responses' tokens."""
    inputs = [model_input(response) for response in responses]
    width = max(map(len, inputs))
    rows = [
        torch.arange(len(response.prompt_ids) - 1, len(ids)) + width * row
        for row, (response, ids) in enumerate(zip(responses, inputs, strict=True))
    ]
    return torch.tensor([ids + [0] * (width - len(ids)) for ids in inputs]), torch.cat(rows)


def _by_response(columns: dict[str, Tensor], lengths: list[int]) -> list[dict[str, np.ndarray]]:
    ends = np.cumsum(lengths)[:-1]
    split = {name: np.split(values.cpu().numpy(), ends) for name, values in columns.items()}
    return [{name: parts[row] for name, parts in split.items()} for row in range(len(lengths))]


def _with_readings(responses: Sequence[Response], readings: Readings) -> list[Response]:
    """The responses with their readings; empty arrays for an empty response."""
    example = next(iter(readings.values()), {})
    empty = {name: values[:0] for name, values in example.items()}
    scored = []
    for index, response in enumerate(responses):
        extras = dict(readings.get(index, empty))
        logprobs = extras.pop("logprobs", None)
        values = None if logprobs is None else logprobs.tolist()
        scored.append(replace(response, logprobs=values, extras=extras))
    return scored


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """End tokens of the model, the generation configuration and the tokenizer."""
    generation = getattr(model.generation_config, "eos_token_id", None)
    declared = [generation, model.config.eos_token_id, getattr(tokenizer, "eos_token_id", None)]
    lists = [ids if isinstance(ids, list | tuple) else [ids] for ids in declared]
    return frozenset(token for ids in lists for token in ids if isinstance(token, int))


@contextmanager
def _memory_errors_refused() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RefusalError(
            f"the device is out of memory: {' '.join(str(error).split())[:160]}",
            "lower batch_tokens (scoring) or batch_rows (sampling)",
        ) from error
