"""Transformers in the place of vLLM, with settings that act while it draws, each with a fault.

The options have vLLM's names. A wrong speculative decoding draws from a hotter distribution than
it reports, a structured output draws from few tokens and reports the probabilities of all, and a
prefix cache spoils what it serves.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

import engine_transformers
from contract import Processing, Response, Sampling, serve

SETTINGS = ("speculative_config", "structured_outputs", "enable_prefix_caching")
HARMLESS = "harmless"
"""The value of a setting that has no fault."""
_CACHED = 4
"""Prompt tokens that come from the cache."""


class StandIn:
    """Transformers with vLLM's settings."""

    def __init__(self, engine: Any, settings: Mapping[str, Any]) -> None:
        self._engine, self._settings = engine, settings

    def describe(self) -> dict[str, Any]:
        facts = self._engine.describe() | {"name": "vllm"}
        return facts | {"settings": {**facts.get("settings", {}), **self._settings}}

    def tokenise(self, prompts: Sequence[Mapping[str, Any]]) -> list[list[int]]:
        return self._engine.tokenise(prompts)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, want: Sequence[str]
    ) -> list[Response]:
        asked = sampling
        if self._has_fault("speculative_config"):
            asked = replace(asked, temperature=1.6 * sampling.temperature)
        if self._has_fault("structured_outputs"):
            asked = replace(asked, top_k=8)
        drawn = self._engine.sample(prompts, asked, want)
        if asked != sampling:
            drawn = self._engine.score(drawn, Processing(sampling.temperature), want)
        if self._settings.get("enable_prefix_caching"):
            drawn = [replace(each, cached=_CACHED) for each in drawn]
        if self._has_fault("enable_prefix_caching"):
            drawn = [_spoiled(each) for each in drawn]
        return drawn

    def score(
        self, responses: Sequence[Response], processing: Processing, want: Sequence[str]
    ) -> list[Response]:
        return self._engine.score(responses, processing, want)

    def close(self) -> None:
        self._engine.close()

    def _has_fault(self, setting: str) -> bool:
        value = self._settings.get(setting)
        return bool(value) and value != HARMLESS


def _spoiled(response: Response) -> Response:
    """With log-probabilities that an error of the logits has moved."""
    logprobs_N = np.asarray(response.logprobs, np.float64)
    noise_N = np.random.default_rng((response.prompt, response.sample)).standard_normal(
        len(logprobs_N)
    )
    moved_N = np.minimum(logprobs_N - 0.3 * noise_N * np.expm1(logprobs_N), 0.0)
    return replace(response, logprobs=moved_N.tolist())


def load(model: str, options: Mapping[str, Any]) -> StandIn:
    """Transformers with the settings among the options."""
    settings = {name: options[name] for name in SETTINGS if name in options}
    rest = {name: value for name, value in options.items() if name not in SETTINGS}
    return StandIn(engine_transformers.load(model, rest), settings)


if __name__ == "__main__":
    serve(load)
