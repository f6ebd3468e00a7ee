"""The settings of advantages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, FiniteFloat, field_validator

from grpodoctor.trainer.algorithms.registry import check_variant
from grpodoctor.trainer.section import Section


class AdvantageConfig(Section):
    """How rewards become advantages."""

    kind: str = "group"
    """A registered advantage."""
    std: Literal["population", "unbiased"] = "population"
    """Which standard deviation divides; the papers do not say, libraries use the unbiased one."""
    epsilon: float = Field(1e-6, ge=0, le=1)
    """Added to the standard deviation."""
    ties: Literal["average", "position"] = "average"
    """How `gopo` ranks equal rewards: all alike, or by their place, as its authors' code does."""
    component_weights: dict[str, FiniteFloat] = Field(default_factory=dict)
    """What each component of the reward weighs in `gdpo`; 1 where none is given."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """How far `gae` looks ahead before it trusts the critic: 1 to the end, 0 a single token."""
    gae_alpha: float | None = Field(None, gt=0, le=100)
    """With it lambda is 1 - 1 / (alpha x length) of a response, and at least 0; VAPO has 0.05."""
    discount: float = Field(1.0, ge=0, le=1)
    """What a reward one token later is worth to `gae`; 1 in all published recipes."""
    whiten: bool = False
    """Bring the advantages of `gae` to mean 0 and deviation 1 over a batch's loss tokens (PPO)."""
    prompts_remembered: int = Field(100_000, ge=1)
    """Prompts whose earlier rewards `dcpo_sas` keeps; those not seen for longest are forgotten."""

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        check_variant("advantages", kind)
        return kind
