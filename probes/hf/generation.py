"""Samples responses from a transformers model, token by token, with a key-value cache.

Each response has its own random numbers, which depend on seed, prompt and sample. The other
responses of its batch affect its tokens only through the rounding of the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from contract import Processing, RefusalError, Response, Sampling
from torch import Tensor
from transformers import Cache

from hf.logits import log_probabilities, readings, sample_tokens
from hf.routers import Routers
from hf.split_model import SplitModel
from hf.what_if.processors import SamplingProcessors


@dataclass(frozen=True)
class Decoder:
    """Samples responses.

    Shape suffixes: R responses of a batch, A active ones, W positions so far.
    """

    model: SplitModel
    routers: Routers
    ends: frozenset[int]
    """Tokens that end a response."""
    context: int
    """Longest sequence."""
    rows: int
    """Most responses per batch."""
    broadcast: Callable[[Tensor], Tensor] = lambda ids: ids
    """Makes the tokens equal on all ranks."""

    def draw(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """`sampling.samples` responses per prompt, grouped by prompt."""
        lines = [
            _GrowingResponse(Response(prompt, [], [], index, sample), self._room(prompt, sampling))
            for index, prompt in enumerate(prompts)
            for sample in range(sampling.samples)
        ]
        by_length = sorted(lines, key=lambda line: len(line.response.prompt_ids))
        for start in range(0, len(lines), self.rows):
            self._sample_batch(by_length[start : start + self.rows], sampling, want)
        return [line.finished() for line in lines]

    def _room(self, prompt: Sequence[int], sampling: Sampling) -> int:
        return min(sampling.max_tokens, self.context - len(prompt))

    def _sample_batch(
        self, lines: list[_GrowingResponse], sampling: Sampling, want: Sequence[str]
    ) -> None:
        device = self.model.device
        ids_RW, seen_RW = _left_padded([line.response.prompt_ids for line in lines], device)
        uniforms = np.stack([_uniforms(line, sampling) for line in lines])
        uniform_RT = torch.from_numpy(uniforms).to(device)
        stops = self.ends | set(sampling.stop_ids)
        ends = frozenset() if sampling.ignore_end else stops
        prompts = [line.response.prompt_ids for line in lines]
        processors = SamplingProcessors(sampling, prompts, sorted(stops))
        cache: Any = None
        for step in range(max(line.room for line in lines)):
            with self.routers.watched("experts" in want) as tape:
                logits_AV, cache = self.model.next_logits(ids_RW, seen_RW, cache)
            logits_AV = processors.processed(logits_AV)
            ids_A, columns = _choose(logits_AV, uniform_RT[:, step], sampling, want)
            ids_A = self.broadcast(ids_A)
            processors.append(ids_A)
            if tape is not None:
                width = ids_RW.shape[1]
                columns |= tape.readings(torch.arange(1, len(ids_A) + 1, device=device) * width - 1)
            active = _append(lines, ids_A, columns, ends)
            if not active:
                return
            ids_RW, seen_RW = ids_A[:, None], _grown(seen_RW)
            if len(active) <= len(lines) // 2:
                lines = [lines[row] for row in active]
                kept_A = torch.tensor(active, device=device)
                ids_RW, seen_RW, uniform_RT = ids_RW[kept_A], seen_RW[kept_A], uniform_RT[kept_A]
                _keep(cache, kept_A)
                processors.keep(kept_A)


def _keep(cache: Any, rows_A: Tensor) -> None:
    """Keep these rows of a cache.

    A family with states outside the layers of its cache, as MiniMax, overrides the selection only.
    """
    own = getattr(type(cache), "batch_select_indices", None)
    if own is not None and own is not Cache.batch_select_indices:
        cache.batch_select_indices(rows_A)
    else:
        cache.reorder_cache(rows_A)


@dataclass
class _GrowingResponse:
    """A response that is being sampled."""

    response: Response
    room: int
    """Most tokens that it may have."""
    tokens: list[int] = field(default_factory=list)
    columns: dict[str, list[np.ndarray]] = field(default_factory=dict)
    done: bool = False

    def append(self, token: int, values: dict[str, np.ndarray], ends: frozenset[int]) -> None:
        self.tokens.append(token)
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)
        self.response.ended = token in ends
        self.done = self.response.ended or len(self.tokens) >= self.room

    def finished(self) -> Response:
        self.response.response_ids = self.tokens
        arrays = {name: np.stack(values) for name, values in self.columns.items()}
        self.response.logprobs = arrays.pop("logprobs").tolist()
        self.response.extras = arrays
        return self.response


def _append(
    lines: list[_GrowingResponse], ids_A: Tensor, columns: dict[str, Tensor], ends: frozenset[int]
) -> list[int]:
    """Append a token to each response; returns the rows of those that continue."""
    arrays = {name: values.cpu().numpy() for name, values in columns.items()}
    for row, (line, token) in enumerate(zip(lines, ids_A.tolist(), strict=True)):
        if not line.done:
            line.append(token, {name: values[row] for name, values in arrays.items()}, ends)
    return [row for row, line in enumerate(lines) if not line.done]


def _choose(
    logits_AV: Tensor, uniform_A: Tensor, sampling: Sampling, want: Sequence[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    processing = Processing.of(sampling)
    logprobs_AV = log_probabilities(logits_AV, processing)
    if bool(logprobs_AV.isnan().any()):
        raise RefusalError(
            "the model's logits are not finite, so no token can be sampled",
            "use a wider dtype, such as bfloat16 instead of float16",
        )
    if sampling.temperature == 0:
        ids_A = logprobs_AV.argmax(dim=-1)
    else:
        ids_A = sample_tokens(logprobs_AV, uniform_A)
    return ids_A, readings(logits_AV, ids_A, processing, want)


def _uniforms(line: _GrowingResponse, sampling: Sampling) -> np.ndarray:
    """The random numbers of a response.

    Seed and prompt index are added, because the seed of a shard is the task's seed plus the index
    of its first prompt. So the shard size does not matter.
    """
    prompt_seed = (sampling.seed + line.response.prompt) % 2**63
    generator = np.random.default_rng([prompt_seed, line.response.sample])
    return generator.random(sampling.max_tokens)


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    seen = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(seen, device=device)


def _grown(seen_RW: Tensor) -> Tensor:
    return torch.nn.functional.pad(seen_RW, (0, 1), value=1)
