"""The interface between `VllmEngine` and the ways to reach vLLM, in process or over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pydantic import BaseModel


class PromptRequest(NamedTuple):
    """A prompt and the number of responses to sample for it."""

    prompt: Sequence[int]
    first: int
    """Index of the first response in the batch."""
    responses: int
    seed: int


class SamplingSettings(NamedTuple):
    """Settings that are the same for all responses of a batch."""

    temperature: float
    top_p: float
    top_k: int
    """0 keeps all tokens."""
    max_length: int
    end_ids: Sequence[int]
    top_tokens: int
    """Number of most likely tokens to report per position."""


class VllmResponse(NamedTuple):
    """One response as vLLM returns it."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    top: Sequence[Mapping[int, float]]
    """Per position: log-probabilities of the most likely tokens and possibly of the sampled one."""


class ServedModel(BaseModel):
    """A worker's description of the model that it serves."""

    version: str
    sizes: dict[str, int | str | bool | None]
    logprobs_mode: str
    max_model_len: int


class LoadResult(BaseModel):
    """A worker's report on a weight sync."""

    tensors: int
    missing: list[str]
    error: str


class Backend(Protocol):
    """A way to reach vLLM. Each method raises `EngineError` if vLLM fails."""

    @property
    def name(self) -> str:
        """Name for error messages."""

    def describe(self) -> Sequence[ServedModel]:
        """The model that each worker serves."""

    def load(self, path: str) -> Sequence[LoadResult]:
        """Load a safetensors file in each worker."""

    def reset_prefix_cache(self) -> None:
        """Empty the prefix cache."""

    def sample(
        self, requests: Sequence[PromptRequest], settings: SamplingSettings
    ) -> Sequence[Sequence[VllmResponse]]:
        """The responses to each prompt, in order."""

    def close(self) -> None:
        """Release all resources."""
