"""The `advantage` section, shared by all advantages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat, field_validator

from grpodoctor.trainer.algorithms.names import check_variant
from grpodoctor.trainer.config_section import ConfigSection


class AdvantageConfig(ConfigSection):
    """How rewards become advantages."""

    kind: str = "group"
    """Name of a registered advantage."""
    std: Literal["population", "unbiased"] = "population"
    """Standard deviation to divide by; papers do not specify it, libraries use the unbiased one."""
    epsilon: float = Field(1e-6, ge=0, le=1)
    """Added to the standard deviation."""
    ties: Literal["average", "position"] = "average"
    """How `gopo` ranks equal rewards: equally, or by position, as in its authors' code."""
    component_weights: dict[str, FiniteFloat] = Field(default_factory=dict)
    """Weight of each reward component in `gdpo`; 1 by default."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Lambda of `gae`: 1 uses the observed return, 0 only the critic after one token."""
    gae_alpha: float | None = Field(None, gt=0, le=100)
    """If set, lambda is 1 - 1 / (alpha x response length), at least 0; VAPO uses 0.05."""
    discount: float = Field(1.0, ge=0, le=1)
    """Discount per token of `gae`; 1 in all published recipes."""
    whiten: bool = False
    """Scale the advantages of `gae` to mean 0 and standard deviation 1 over a batch's loss tokens
    (PPO)."""
    prompts_remembered: int = Field(100_000, ge=1)
    """Prompts whose earlier rewards `dcpo_sas` keeps; the least recently seen are dropped."""

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        check_variant("advantages", kind)
        return kind
