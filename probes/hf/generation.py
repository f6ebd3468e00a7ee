"""Drawing responses from a model of transformers, token by token, with a cache of keys and values.

Each response has random numbers of its own, by seed, prompt and sample: which others are drawn
beside it changes its tokens by no more than the rounding of a forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from contract import Processing, RefusalError, Response, Sampling
from torch import Tensor

from hf.logits import drawn, log_probabilities, readings
from hf.routers import Routers
from hf.split_model import Halves


@dataclass(frozen=True)
class Decoder:
    """Draws responses.

    Shape suffixes: R responses of a lot, A of them still growing, W columns so far.
    """

    halves: Halves
    routers: Routers
    ends: frozenset[int]
    """Tokens that end a response."""
    context: int
    """Longest sequence."""
    rows: int
    """Most responses at a time."""
    alike: Callable[[Tensor], Tensor] = lambda ids: ids
    """Makes tokens the same on all ranks."""

    def draw(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        """`sampling.samples` responses a prompt, those of a prompt together."""
        lines = [
            _Line(Response(prompt, [], [], index, sample), self._room(prompt, sampling))
            for index, prompt in enumerate(prompts)
            for sample in range(sampling.samples)
        ]
        by_length = sorted(lines, key=lambda line: len(line.response.prompt_ids))
        for start in range(0, len(lines), self.rows):
            self._draw_lot(by_length[start : start + self.rows], sampling, want)
        return [line.finished() for line in lines]

    def _room(self, prompt: Sequence[int], sampling: Sampling) -> int:
        return min(sampling.max_tokens, self.context - len(prompt))

    def _draw_lot(self, lines: list[_Line], sampling: Sampling, want: Sequence[str]) -> None:
        device = self.halves.device
        ids_RW, seen_RW = _left_padded([line.response.prompt_ids for line in lines], device)
        uniforms = np.stack([_uniforms(line, sampling) for line in lines])
        uniform_RT = torch.from_numpy(uniforms).to(device)
        ends = frozenset() if sampling.ignore_end else self.ends | set(sampling.stop_ids)
        cache: Any = None
        for step in range(max(line.room for line in lines)):
            with self.routers.watched("experts" in want) as tape:
                logits_AV, cache = self.halves.next_logits(ids_RW, seen_RW, cache)
            ids_A, found = _choose(logits_AV, uniform_RT[:, step], sampling, want)
            ids_A = self.alike(ids_A)
            if tape is not None:
                width = ids_RW.shape[1]
                found |= tape.readings(torch.arange(1, len(ids_A) + 1, device=device) * width - 1)
            going = _note(lines, ids_A, found, ends)
            if not going:
                return
            ids_RW, seen_RW = ids_A[:, None], _grown(seen_RW)
            if len(going) <= len(lines) // 2:
                lines = [lines[row] for row in going]
                kept_A = torch.tensor(going, device=device)
                ids_RW, seen_RW, uniform_RT = ids_RW[kept_A], seen_RW[kept_A], uniform_RT[kept_A]
                cache.reorder_cache(kept_A)


@dataclass
class _Line:
    """A response while it grows."""

    response: Response
    room: int
    """Tokens that it may have."""
    tokens: list[int] = field(default_factory=list)
    found: dict[str, list[np.ndarray]] = field(default_factory=dict)
    done: bool = False

    def take(self, token: int, found: dict[str, np.ndarray], ends: frozenset[int]) -> None:
        self.tokens.append(token)
        for name, value in found.items():
            self.found.setdefault(name, []).append(value)
        self.response.ended = token in ends
        self.done = self.response.ended or len(self.tokens) >= self.room

    def finished(self) -> Response:
        self.response.response_ids = self.tokens
        arrays = {name: np.stack(values) for name, values in self.found.items()}
        self.response.logprobs = arrays.pop("logprobs").tolist()
        self.response.extras = arrays
        return self.response


def _note(
    lines: list[_Line], ids_A: Tensor, found: dict[str, Tensor], ends: frozenset[int]
) -> list[int]:
    """Write down a token of each response; returns which of them go on."""
    arrays = {name: values.cpu().numpy() for name, values in found.items()}
    for row, (line, token) in enumerate(zip(lines, ids_A.tolist(), strict=True)):
        if not line.done:
            line.take(token, {name: values[row] for name, values in arrays.items()}, ends)
    return [row for row, line in enumerate(lines) if not line.done]


def _choose(
    logits_AV: Tensor, uniform_A: Tensor, sampling: Sampling, want: Sequence[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    processing = Processing(sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p)
    logprobs_AV = log_probabilities(logits_AV, processing)
    if bool(logprobs_AV.isnan().any()):
        raise RefusalError(
            "the model's logits are not finite: nothing can be drawn from them",
            "use a wider dtype, such as bfloat16 in place of float16",
        )
    if sampling.temperature == 0:
        ids_A = logprobs_AV.argmax(dim=-1)
    else:
        ids_A = drawn(logprobs_AV, uniform_A)
    return ids_A, readings(logits_AV, ids_A, processing, want)


def _uniforms(line: _Line, sampling: Sampling) -> np.ndarray:
    """A response's random numbers.

    Seed and prompt are added: a shard's seed is its first prompt's number more than the task's, so
    that the size of shards changes nothing.
    """
    of_prompt = (sampling.seed + line.response.prompt) % 2**63
    generator = np.random.default_rng([of_prompt, line.response.sample])
    return generator.random(sampling.max_tokens)


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    seen = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(seen, device=device)


def _grown(seen_RW: Tensor) -> Tensor:
    return torch.nn.functional.pad(seen_RW, (0, 1), value=1)
