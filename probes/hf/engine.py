"""What the programs that run transformers share: an engine that samples and scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from contract import Processing, RefusalError, Response, Sampling
from torch import Tensor

from hf.generation import Decoder
from hf.loading import Settings, load_tokenizer
from hf.logits import batches, chunk_rows, readings
from hf.replay import check_experts
from hf.routers import Routers
from hf.split_model import Halves
from hf.tokenizer import encoded

Found = dict[int, dict[str, np.ndarray]]
"""Readings by the number of the response."""


class Ranks(Protocol):
    """How several processes divide what is to be scored."""

    layout: dict[str, int]

    def share(self, lots: list[list[int]]) -> list[tuple[list[int], bool]]:
        """This rank's lots, as many as every other's; whether each counts or only keeps step."""

    def collect(self, found: Found) -> Found:
        """What all ranks have found, on the one that writes."""

    def alike(self, ids: Tensor) -> Tensor:
        """The first rank's."""

    def close(self) -> None:
        """Let go of the others."""


class Alone:
    """One process that does it all."""

    def __init__(self) -> None:
        self.layout: dict[str, int] = {}

    def share(self, lots: list[list[int]]) -> list[tuple[list[int], bool]]:
        """All of them."""
        return [(lot, True) for lot in lots]

    def collect(self, found: Found) -> Found:
        """What it has found."""
        return found

    def alike(self, ids: Tensor) -> Tensor:
        """Its own."""
        return ids

    def close(self) -> None:
        """There is nobody else."""


class TransformersEngine:
    """A causal language model of transformers.

    Args:
        name: of the program.
        path: of the model, as the user wrote it.
        model: loaded, on its device.
        settings: it was loaded with.
        device: where its inputs belong.
        ranks: who takes part.
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
        self._model, self._device, self._ranks = model, device, ranks or Alone()
        self._halves = Halves(model, device, settings.compute_dtype)
        self._routers = Routers(model)
        config = model.config.get_text_config()
        self._vocabulary = int(config.vocab_size)
        self._tokenizer = load_tokenizer(path, settings, self._vocabulary)
        self._context = int(getattr(config, "max_position_embeddings", None) or 2**31)
        self._ends = _end_ids(model, self._tokenizer)

    def describe(self) -> dict[str, Any]:
        """What the engine is; see the contract."""
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
        """Ids of raw text with the tokenizer's own specials; messages through the template.

        Raises:
            RefusalError: if there is no tokenizer, or no template for messages.
        """
        if self._tokenizer is None:
            raise RefusalError(
                f"{self._path} has no tokenizer of its vocabulary",
                "give prompts as ids, or add tokenizer.json to it",
            )
        return [encoded(self._tokenizer, prompt) for prompt in prompts]

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """Responses with log-probabilities of the distribution that they were drawn from."""
        for index, prompt in enumerate(prompts):
            self._check(f"prompt {index}", prompt, (), len(prompt) + 1)
        if min(sampling.samples, sampling.max_tokens) < 1 or sampling.temperature < 0:
            raise RefusalError("samples, max_tokens or temperature is too small", "set 1 or more")
        decoder = Decoder(
            self._halves,
            self._routers,
            self._ends,
            self._context,
            self._settings.batch_rows,
            self._ranks.alike,
        )
        with _memory():
            return decoder.draw(prompts, sampling, want)

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """The same responses with this model's log-probabilities."""
        return self._scored(responses, processing, want, replayed=False)

    def replay(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        """The same with the experts of `extras["experts"]` at work; see the contract.

        Raises:
            RefusalError: as `score`; or if the experts cannot be those of this model, or its
                routers do not weigh by a softmax.
        """
        routers = self._routers
        if not routers:
            raise RefusalError(f"{self._path} has no experts to replay", "leave replay out")
        for each in responses:
            shape = (len(each.response_ids), len(routers.modules), routers.slots)
            check_experts(_name(each), each.extras.get("experts"), shape, routers.experts)
        return self._scored(responses, processing, want, replayed=True)

    def _scored(
        self,
        responses: Sequence[Response],
        processing: Processing,
        want: Sequence[str],
        *,
        replayed: bool,
    ) -> list[Response]:
        for each in responses:
            length = len(each.prompt_ids) + len(each.response_ids)
            self._check(_name(each), each.prompt_ids, each.response_ids, length)
        rows = [index for index, each in enumerate(responses) if len(each.response_ids)]
        lengths = [len(_read(responses[row])) for row in rows]
        lots = batches(lengths, self._settings.tokens(self._device))
        found: Found = {}
        with _memory():
            for lot, counts in self._ranks.share([[rows[each] for each in lot] for lot in lots]):
                lines = [responses[row] for row in lot]
                told = self._score_lot(lines, processing, want, replayed=replayed)
                found |= dict(zip(lot, told, strict=True)) if counts else {}
        return _joined(responses, self._ranks.collect(found))

    def _check(
        self, name: str, prompt: Sequence[int], response: Sequence[int], length: int
    ) -> None:
        if not len(prompt):
            raise RefusalError(f"{name} has no prompt tokens", "give every prompt at least one")
        if length > self._context:
            raise RefusalError(
                f"{name} has {length} tokens and the context of {self._path} {self._context}",
                "leave it out, or lower max_tokens",
            )
        strange = [each for each in (*prompt, *response) if not 0 <= each < self._vocabulary]
        if strange:
            raise RefusalError(
                f"{name} has the id {strange[0]}, and {self._path} {self._vocabulary} of them",
                "give both engines models of one vocabulary",
            )

    def _score_lot(
        self,
        responses: Sequence[Response],
        processing: Processing,
        want: Sequence[str],
        *,
        replayed: bool,
    ) -> list[dict[str, np.ndarray]]:
        """Readings of some responses in one forward pass, which none of them is too long for."""
        ids_BL, rows_N = _right_padded(responses)
        targets = torch.cat([torch.as_tensor(each.response_ids) for each in responses])
        rows_N, ids_N = rows_N.to(self._device), targets.to(self._device)
        forced_NDK = _forced(responses, ids_BL, rows_N) if replayed else None
        wanted = "experts" in want
        with self._routers.watched(wanted, forced_NDK) as tape:
            hidden_BLH = self._halves.hidden(ids_BL.to(self._device))
        hidden_NH = hidden_BLH.flatten(0, 1)[rows_N]
        del hidden_BLH
        width = chunk_rows(self._vocabulary, self._device)
        parts = [
            readings(self._halves.logits(hidden), ids, processing, want)
            for hidden, ids in zip(
                torch.split(hidden_NH, width), torch.split(ids_N, width), strict=True
            )
        ]
        found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        if tape is not None and wanted:
            found |= tape.readings(rows_N)
        return _by_response(found, [len(each.response_ids) for each in responses])

    def close(self) -> None:
        """Free the model."""
        self._halves.close()
        self._ranks.close()
        self._model = None


def _name(response: Response) -> str:
    return f"response {response.sample} to prompt {response.prompt}"


def _forced(responses: Sequence[Response], ids_BL: Tensor, rows_N: Tensor) -> Tensor:
    """The experts of every column of a pass, -1 in those that predict no token of a response."""
    parts = [torch.as_tensor(each.extras["experts"].astype(np.int64)) for each in responses]
    experts_NDK = torch.cat(parts).to(rows_N.device)
    forced = torch.full((ids_BL.numel(), *experts_NDK.shape[1:]), -1, device=rows_N.device)
    forced[rows_N] = experts_NDK
    return forced


def _read(response: Response) -> list[int]:
    """What the model reads: all but the last token, which predicts nothing that is asked for."""
    return [*response.prompt_ids, *response.response_ids][:-1]


def _right_padded(responses: Sequence[Response]) -> tuple[Tensor, Tensor]:
    """The ids (B, L), and which of their B x L columns predict the responses' tokens (N,)."""
    lines = [_read(each) for each in responses]
    width = max(map(len, lines))
    rows = [
        torch.arange(len(response.prompt_ids) - 1, len(line)) + width * row
        for row, (response, line) in enumerate(zip(responses, lines, strict=True))
    ]
    return torch.tensor([line + [0] * (width - len(line)) for line in lines]), torch.cat(rows)


def _by_response(found: dict[str, Tensor], lengths: list[int]) -> list[dict[str, np.ndarray]]:
    ends = np.cumsum(lengths)[:-1]
    split = {name: np.split(values.cpu().numpy(), ends) for name, values in found.items()}
    return [{name: parts[row] for name, parts in split.items()} for row in range(len(lengths))]


def _joined(responses: Sequence[Response], found: Found) -> list[Response]:
    """The responses with what was found of them; nothing is found of an empty one but emptiness."""
    pattern = next(iter(found.values()), {})
    empty = {name: values[:0] for name, values in pattern.items()}
    joined = []
    for index, response in enumerate(responses):
        told = dict(found.get(index, empty))
        logprobs = told.pop("logprobs", None)
        values = None if logprobs is None else logprobs.tolist()
        joined.append(replace(response, logprobs=values, extras=told))
    return joined


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token that model, generation configuration or tokenizer declare as an end."""
    generation = getattr(model.generation_config, "eos_token_id", None)
    declared = [generation, model.config.eos_token_id, getattr(tokenizer, "eos_token_id", None)]
    lists = [each if isinstance(each, list | tuple) else [each] for each in declared]
    return frozenset(each for entries in lists for each in entries if isinstance(each, int))


@contextmanager
def _memory() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise RefusalError(
            f"the device has not enough memory: {' '.join(str(error).split())[:160]}",
            "lower batch_tokens (scoring) or batch_rows (sampling)",
        ) from error
