"""An engine's description of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from grpodoctor.support.validation_reasons import first_reason


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine's description of itself; see `Engine.describe` in `probes/contract/engine.py`."""

    name: str
    version: str
    model: str
    dtype: str
    device: str
    layout: Mapping[str, int]
    vocab_size: int
    end_ids: tuple[int, ...]
    begin_id: int | None
    context: int
    logprobs: Literal["raw", "processed"]
    settings: Mapping[str, Any]
    python: str
    load_seconds: float
    processors: tuple[str, ...] = ()
    """Names of the contract's `PROCESSORS` that it applies when it samples."""


_ADAPTER = TypeAdapter(EngineFacts)


def parse_facts(facts: Mapping[str, Any]) -> EngineFacts:
    """Check a description.

    Raises:
        ValueError: if a key is missing or has the wrong type; the message names it.
    """
    try:
        return _ADAPTER.validate_python(facts)
    except ValidationError as error:
        raise ValueError(first_reason(error)) from None
