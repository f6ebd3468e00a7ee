"""The settings of the planned run that a preflight checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.vocabulary.knobs import Setting

_IN_CONFIG = {
    "group_size": "group_size",
    "batch_prompts": "prompts_per_batch",
    "max_tokens": "max_length",
}
"""Sizes that the run's config contains, with their names there."""


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
    given: frozenset[str] = frozenset()
    """Names of the sizes that the user gave; a config replaces the others."""

    def completed_by(self, config: Mapping[str, Setting]) -> RunSettings:
        """The settings with the sizes of the run's config, unless the user gave them.

        Args:
            config: the knobs of the config.
        """
        usual = RunSettings()
        sizes: dict[str, Any] = {}
        for name, knob in _IN_CONFIG.items():
            value = config.get(knob)
            is_usual = name not in self.given and getattr(self, name) == getattr(usual, name)
            if is_usual and isinstance(value, int | float) and value >= 1:
                sizes[name] = int(value)
        return replace(self, **sizes)
