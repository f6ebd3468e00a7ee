"""The settings of the planned run that a preflight checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of the planned run, as far as the user gave them."""

    group_size: int = 8
    batch_prompts: int = 64
    max_tokens: int = 512
    temperatures: tuple[float, ...] = (1.0,)
    """The first is the run's sampling temperature."""
    samples: int = 8
    """Responses per prompt for estimates of pass rates."""
    limit: int = 64
    """Maximum number of prompts to sample responses for."""
    gold_format: str | None = None
    """Format of a correct answer, with `{answer}` in it."""
    memory_gib: float | None = None
    """Memory of one device, GiB."""
    seed: int = 0
