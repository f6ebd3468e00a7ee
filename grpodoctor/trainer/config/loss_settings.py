"""The settings of each loss: what all have, and what is one's own.

They stand apart from the losses themselves so that a configuration is checked without importing
torch. A loss that allows a single aggregation brings its own denominator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.registry import check_variant
from grpodoctor.trainer.section import Section

Aggregation = Literal[
    "sequence-mean",
    "token-mean",
    "prompt-mean",
    "constant",
    "sequence-mean-token-sum",
    "sequence-sum-token-mean",
]


class LossConfig(Section):
    """What every loss has."""

    anchored_on_sampler: ClassVar[bool] = False
    """Whether its ratio is learner / sampler, which corrects the engine's mismatch already."""
    of_responses: ClassVar[bool] = False
    """Whether a response has one term, so that weights of single tokens have no place."""
    wants_router_shift: ClassVar[bool] = False
    """Whether it asks how far the routers of a mixture of experts moved."""
    bounds_weights: ClassVar[bool] = False
    """Whether its bound holds a token's weight and leaves it a gradient, rather than stop it."""

    kind: str
    """A registered loss."""
    aggregation: Aggregation
    """The denominator: of a response, of the batch, of a prompt's group, or the length limit."""
    kl_coefficient: float = Field(0.0, ge=0, le=10)
    """Weight of the KL penalty to the model the run began with."""
    kl_estimator: str = "k3"
    """A registered estimator of that penalty."""
    kl_placement: Literal["loss", "reward"] = "loss"
    """`reward` takes k1, summed over a response, off its reward, as RLOO does."""
    entropy_coefficient: float = Field(0.0, ge=-1, le=1)
    """Weight of the entropy bonus."""
    entropy_target: float | None = Field(None, gt=0, le=20)
    """Entropy, in nats a token, that an adaptive bonus holds; the bonus is fixed by default."""
    entropy_step: float = Field(0.005, gt=0, le=1)
    """What the adaptive coefficient rises or falls by at a training step."""
    entropy_coefficient_min: float = Field(0.0, ge=0, le=1)
    """Least adaptive coefficient, and where it begins."""
    entropy_coefficient_max: float = Field(1.0, ge=0, le=1)
    """Largest adaptive coefficient."""
    positive_nll: float = Field(0.0, ge=0, le=10)
    """Weight of the likelihood of correct responses; VAPO has 0.1."""
    off_policy_limit: float | None = Field(None, gt=0, le=100)
    """Responses with A < 0 whose mean log(sampler / learner) exceeds it are left out; none are."""

    @field_validator("kl_estimator")
    @classmethod
    def _is_registered(cls, kl_estimator: str) -> str:
        check_variant("kl", kl_estimator)
        return kl_estimator

    def sampler_top_tokens(self) -> int:
        """How many of the sampler's likeliest tokens the loss wants told at each position."""
        return 0


class PpoClip(LossConfig):
    """PPO's clip: GRPO, DAPO, Dr. GRPO, LitePPO."""

    kind: Literal["ppo_clip"] = "ppo_clip"
    aggregation: Aggregation = "sequence-mean"
    clip_low: float = Field(0.2, ge=0, le=1)
    """The ratio may fall to 1 - clip_low."""
    clip_high: float = Field(0.2, ge=0, le=10)
    """The ratio may rise to 1 + clip_high."""
    dual_clip: float | None = Field(None, gt=1)
    """Largest ratio of a token with A < 0 that still has a gradient; none by default."""


class Reinforce(LossConfig):
    """REINFORCE, and with a leave-one-out advantage RLOO."""

    kind: Literal["reinforce"] = "reinforce"
    aggregation: Aggregation = "sequence-mean-token-sum"


class Gspo(LossConfig):
    """GSPO: one ratio and one clip per response."""

    of_responses: ClassVar[bool] = True

    kind: Literal["gspo"] = "gspo"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    clip_low: float = Field(3e-4, ge=0, le=1)
    """The response's ratio may fall to 1 - clip_low."""
    clip_high: float = Field(4e-4, ge=0, le=10)
    """The response's ratio may rise to 1 + clip_high."""


class GspoToken(LossConfig):
    """GSPO-token: the response's ratio, token by token."""

    kind: Literal["gspo_token"] = "gspo_token"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    clip_low: float = Field(3e-4, ge=0, le=1)
    """The response's ratio may fall to 1 - clip_low."""
    clip_high: float = Field(4e-4, ge=0, le=10)
    """The response's ratio may rise to 1 + clip_high."""


class Gmpo(LossConfig):
    """GMPO: the geometric mean of clipped ratios."""

    of_responses: ClassVar[bool] = True

    kind: Literal["gmpo"] = "gmpo"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    log_clip: float = Field(0.4, gt=0, le=5)
    """How far the logarithm of a token's ratio may move in the direction the advantage rewards."""


class Rspo(LossConfig):
    """RSPO: GMPO, less of it where the routers moved."""

    of_responses: ClassVar[bool] = True
    wants_router_shift: ClassVar[bool] = True

    kind: Literal["rspo"] = "rspo"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    log_clip: float = Field(0.4, gt=0, le=5)
    """How far the logarithm of a token's ratio may move in the direction the advantage rewards."""
    shift_floor: float = Field(0.8, gt=0, le=1)
    """Least weight of a token's ratio, however far its routing moved; 1 is GMPO."""


class Cispo(LossConfig):
    """CISPO: a bounded weight and no token without a gradient."""

    bounds_weights: ClassVar[bool] = True

    kind: Literal["cispo"] = "cispo"
    aggregation: Aggregation = "token-mean"
    clip_low: float = Field(1.0, ge=0, le=1)
    """The weight does not fall below 1 - clip_low; 1 leaves the lower side open."""
    clip_high: float = Field(4.0, ge=0, le=100)
    """The weight does not rise above 1 + clip_high."""


class ScaleRl(LossConfig):
    """ScaleRL's CISPO, anchored on the sampler."""

    anchored_on_sampler: ClassVar[bool] = True
    bounds_weights: ClassVar[bool] = True

    kind: Literal["scalerl"] = "scalerl"
    aggregation: Aggregation = "prompt-mean"
    ratio_cap: float = Field(5.0, ge=1, le=100)
    """Largest weight."""


class Sapo(LossConfig):
    """SAPO: a soft gate in place of the clip."""

    kind: Literal["sapo"] = "sapo"
    aggregation: Aggregation = "sequence-mean"
    tau_positive: float = Field(1.0, ge=0.01, le=100)
    """Hardness of the gate where A > 0; towards 0 it is no gate at all."""
    tau_negative: float = Field(1.05, ge=0.01, le=100)
    """Hardness of the gate elsewhere; the paper's runs need it at least as hard."""


class Vespo(LossConfig):
    """VESPO: a soft kernel of the whole response's importance weight."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["vespo"] = "vespo"
    aggregation: Aggregation = "token-mean"
    power_positive: float = Field(2.0, ge=0, le=20)
    """k where A >= 0: suppresses responses that became unlikely."""
    decay_positive: float = Field(3.0, gt=0, le=20)
    """Lambda where A >= 0: suppresses responses that became likely."""
    power_negative: float = Field(3.0, ge=0, le=20)
    """k where A < 0."""
    decay_negative: float = Field(2.0, gt=0, le=20)
    """Lambda where A < 0."""


class DppoBinaryTv(LossConfig):
    """DPPO with the binary total variation."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["dppo_binary_tv"] = "dppo_binary_tv"
    aggregation: Aggregation = "token-mean"
    divergence_limit: float = Field(0.15, gt=0, le=1)
    """Total variation from which a token may not move further away."""
    ratio_cap: float | None = Field(None, ge=1, le=1000)
    """Largest weight of a token's gradient; none by default."""


class DppoBinaryKl(LossConfig):
    """DPPO with the binary KL divergence."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["dppo_binary_kl"] = "dppo_binary_kl"
    aggregation: Aggregation = "token-mean"
    divergence_limit: float = Field(0.05, gt=0, le=10)
    """KL divergence, in nats, from which a token may not move further away."""
    ratio_cap: float | None = Field(None, ge=1, le=1000)
    """Largest weight of a token's gradient; none by default."""


class DppoTopkTv(LossConfig):
    """DPPO with the total variation over the sampler's likeliest tokens."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["dppo_topk_tv"] = "dppo_topk_tv"
    aggregation: Aggregation = "token-mean"
    top_tokens: int = Field(20, ge=1, le=1000)
    """Likeliest tokens of the sampler that are told apart; all others are one outcome."""
    divergence_limit: float = Field(0.15, gt=0, le=1)
    """Total variation from which a token may not move further away."""
    ratio_cap: float | None = Field(None, ge=1, le=1000)
    """Largest weight of a token's gradient; none by default."""

    def sampler_top_tokens(self) -> int:
        """The tokens that are told apart."""
        return self.top_tokens


class DppoTopkKl(LossConfig):
    """DPPO with the KL divergence over the sampler's likeliest tokens."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["dppo_topk_kl"] = "dppo_topk_kl"
    aggregation: Aggregation = "token-mean"
    top_tokens: int = Field(20, ge=1, le=1000)
    """Likeliest tokens of the sampler that are told apart; all others are one outcome."""
    divergence_limit: float = Field(0.05, gt=0, le=10)
    """KL divergence, in nats, from which a token may not move further away."""
    ratio_cap: float | None = Field(None, ge=1, le=1000)
    """Largest weight of a token's gradient; none by default."""

    def sampler_top_tokens(self) -> int:
        """The tokens that are told apart."""
        return self.top_tokens


class ClipCov(LossConfig):
    """Clip-Cov: some tokens of high covariance get no gradient."""

    kind: Literal["clip_cov"] = "clip_cov"
    aggregation: Aggregation = "token-mean"
    clip_low: float = Field(1.0, ge=0, le=1)
    """The ratio may fall to 1 - clip_low; 1 leaves the lower side open."""
    clip_high: float = Field(1.0, ge=0, le=10)
    """The ratio may rise to 1 + clip_high."""
    share: float = Field(2e-4, ge=0, le=1)
    """Share of the step's loss tokens that are chosen, where so many are eligible."""
    fewest: int = Field(1, ge=0)
    """Fewest tokens chosen at a step, where so many are eligible."""
    covariance_low: float = 1.0
    """A token is eligible above this covariance."""
    covariance_high: float = 5.0
    """And below this one."""


class KlCov(LossConfig):
    """KL-Cov: the tokens of highest covariance are held to the old policy."""

    kind: Literal["kl_cov"] = "kl_cov"
    aggregation: Aggregation = "token-mean"
    share: float = Field(2e-3, ge=0, le=1)
    """Share of the step's loss tokens that are chosen."""
    fewest: int = Field(1, ge=0)
    """Fewest tokens chosen at a step."""
    penalty: float = Field(1.0, ge=0, le=100)
    """What each nat of log-ratio costs a token chosen."""


class SequenceClip(LossConfig):
    """PPO's clip on the product of a response's ratios."""

    of_responses: ClassVar[bool] = True

    kind: Literal["sequence_clip"] = "sequence_clip"
    aggregation: Literal["sequence-mean"] = "sequence-mean"
    clip_low: float = Field(0.2, ge=0, le=1)
    """The response's ratio may fall to 1 - clip_low."""
    clip_high: float = Field(0.2, ge=0, le=10)
    """The response's ratio may rise to 1 + clip_high."""


class Dcpo(LossConfig):
    """DCPO: a clip whose width depends on the token's probability."""

    kind: Literal["dcpo"] = "dcpo"
    aggregation: Aggregation = "sequence-sum-token-mean"
    clip_low: float = Field(0.16, ge=0, le=1)
    """Width below; the bound itself is wider for unlikely tokens."""
    clip_high: float = Field(0.2, ge=0, le=10)
    """Width above; the bound itself is wider for unlikely tokens."""
    ratio_cap: float = Field(10.0, gt=1, le=1000)
    """The upper bound is never above it."""


class MiniRl(LossConfig):
    """MiniRL: PPO's mask, and a weight that covers staleness and engine at once."""

    anchored_on_sampler: ClassVar[bool] = True

    kind: Literal["minirl"] = "minirl"
    aggregation: Aggregation = "sequence-mean-token-sum"
    clip_low: float = Field(0.2, ge=0, le=1)
    """A token with A < 0 is left out once learner / old is below 1 - clip_low."""
    clip_high: float = Field(0.27, ge=0, le=10)
    """A token with A > 0 is left out once learner / old is above 1 + clip_high."""
    ratio_cap: float = Field(5.0, ge=1, le=100)
    """Largest weight learner / sampler."""


_ALL: tuple[type[LossConfig], ...] = (
    *(PpoClip, Reinforce, Gspo, GspoToken, Gmpo, Cispo, ScaleRl, Sapo, Vespo),
    *(DppoBinaryTv, DppoBinaryKl, DppoTopkTv, DppoTopkKl, Dcpo, MiniRl),
    *(ClipCov, KlCov, SequenceClip, Rspo),
)
SETTINGS: Mapping[str, type[LossConfig]] = {
    each.model_fields["kind"].default: each for each in _ALL
}
"""The settings of each loss by its kind."""


def loss_fields() -> tuple[str, ...]:
    """Every setting that some loss has."""
    return tuple(dict.fromkeys(name for each in _ALL for name in each.model_fields))


def loss_config(fields: Mapping[str, Any]) -> LossConfig:
    """The settings of the loss that `fields` names; PPO's clip if it names none.

    Raises:
        ConfigError: if there is no such loss, or a setting belongs to others.
        ValidationError: of pydantic, if a setting is unknown or out of bounds.
    """
    kind = str(fields.get("kind", "ppo_clip"))
    check_variant("losses", kind)
    for name in fields:
        owners = [other for other, each in SETTINGS.items() if name in each.model_fields]
        if owners and kind not in owners:
            raise ConfigError(
                f"the loss {kind} has no setting {name}",
                where=f"loss.{name}",
                remedy=f"leave it out; it belongs to {', '.join(owners)}",
            )
    return SETTINGS[kind].model_validate(fields)


def outlasting(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """What of the settings below still holds when those above may name another loss.

    Another loss begins with its own settings and denominator: a clip that fits one is absurd for
    the other. The penalties that stand beside any loss stay.
    """
    kind = below.get("kind", "ppo_clip")
    if above.get("kind", kind) == kind:
        return dict(below)
    own = {"kind", "aggregation"}
    return {
        key: value for key, value in below.items() if key in LossConfig.model_fields.keys() - own
    }
