"""The settings that every loss has.

A loss's own settings are a subclass of `LossConfig` in the loss's file. Loss files import torch
only inside functions, so a configuration is validated without torch.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from grpodoctor.trainer.algorithms.names import check_variant
from grpodoctor.trainer.config_section import ConfigSection

Aggregation = Literal[
    "sequence-mean",
    "token-mean",
    "prompt-mean",
    "constant",
    "sequence-mean-token-sum",
    "sequence-sum-token-mean",
]


class LossConfig(ConfigSection):
    """The settings that every loss has."""

    anchored_on_sampler: ClassVar[bool] = False
    """Whether the ratio is learner / sampler, which already corrects the engine mismatch."""
    one_term_per_response: ClassVar[bool] = False
    """Whether all tokens of a response share one term, so token weights have no effect."""
    selects_by_covariance: ClassVar[bool] = False
    """Whether `select_tokens` selects the tokens with the largest covariance."""
    needs_router_shift: ClassVar[bool] = False
    """Whether the loss needs the router shift of a mixture-of-experts model."""

    kind: str
    """Name of a registered loss."""
    aggregation: Aggregation
    """Denominator of the loss."""
    kl_coefficient: float = Field(0.0, ge=0, le=10)
    """Weight of the KL penalty to the reference, the model that the run started from."""
    kl_estimator: str = "k3"
    """Name of a registered KL estimator."""
    kl_placement: Literal["loss", "reward"] = "loss"
    """`reward` subtracts k1, summed over the response, from the reward, as RLOO does."""
    entropy_coefficient: float = Field(0.0, ge=-1, le=1)
    """Weight of the entropy bonus."""
    entropy_target: float | None = Field(None, gt=0, le=20)
    """Target entropy of the adaptive bonus, in nats per token; unset keeps the bonus fixed."""
    entropy_step: float = Field(0.005, gt=0, le=1)
    """Change of the adaptive coefficient per training step."""
    entropy_coefficient_min: float = Field(0.0, ge=0, le=1)
    """Smallest adaptive coefficient, and its starting value."""
    entropy_coefficient_max: float = Field(1.0, ge=0, le=1)
    """Largest adaptive coefficient."""
    positive_nll: float = Field(0.0, ge=0, le=10)
    """Weight of the negative log-likelihood of correct responses; VAPO uses 0.1."""
    off_policy_limit: float | None = Field(None, gt=0, le=100)
    """Mask responses with A < 0 whose mean log(sampler / learner) is larger; off by default."""

    @field_validator("kl_estimator")
    @classmethod
    def _is_registered(cls, kl_estimator: str) -> str:
        check_variant("kl", kl_estimator)
        return kl_estimator

    def sampler_top_tokens(self) -> int:
        """How many of the sampler's most likely tokens the loss needs at each position."""
        return 0
