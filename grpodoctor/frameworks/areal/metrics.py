"""AReaL, checked against v2.0."""

from __future__ import annotations

from grpodoctor.frameworks.areal.knobs import KNOBS
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning
from grpodoctor.frameworks.row_keys import RowKeys

_UPDATE = "ppo_actor/update"
_TOKENS = "valid tokens, all ranks"
_WIDTH = "responses as long as the padded batch: the longest always counts"
_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)


FRAMEWORK = Framework(
    name="areal",
    title="AReaL",
    how_to_dump="set rollout.dump_to_file=True",
    row_keys=RowKeys(step=("global_step", "step", "_step")),
    signature=(
        "ppo_actor/task_reward/avg",
        f"{_UPDATE}/importance_weight/avg",
        f"{_UPDATE}/behave_imp_weight/avg",
        "ppo_actor/no_eos_ratios/avg",
        "timeperf/<path>",
    ),
    version_key="areal_version",
    defaults={"actor.use_cispo_loss": False},
    meanings=(
        KeyMeaning(key="ppo_actor/task_reward/avg", metric="reward/mean", over="responses"),
        KeyMeaning(key="ppo_actor/final_reward/avg", over="tokens",
                caveat="per token, after the KL penalty"),
        KeyMeaning(key="ppo_actor/advantages/<statistic>", over=_TOKENS),
        KeyMeaning(key="ppo_actor/kl_rewards/<statistic>", policies="sampler | reference",
                caveat="minus the coefficient times the KL"),
        KeyMeaning(key=("ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg"), metric="length/mean",
                formula="difference", over="responses"),
        KeyMeaning(key="ppo_actor/seq_len/<statistic>", caveat="prompt and response together"),
        KeyMeaning(key="ppo_actor/prompt_len/<statistic>"),
        KeyMeaning(key=("ppo_actor/correct_seq_len/avg", "ppo_actor/prompt_len/avg"),
                metric="length/correct", formula="difference", over="responses of reward above 0",
                caveat="less the mean prompt of all responses"),
        KeyMeaning(key=("ppo_actor/incorrect_seq_len/avg", "ppo_actor/prompt_len/avg"),
                metric="length/incorrect", formula="difference", over="other responses",
                caveat="less the mean prompt of all responses"),
        KeyMeaning(key="ppo_actor/correct_seq_len/<statistic>"),
        KeyMeaning(key="ppo_actor/incorrect_seq_len/<statistic>"),
        KeyMeaning(key="ppo_actor/no_eos_ratios/<statistic>", over="responses",
                caveat=f"no truncation rate: {_WIDTH}"),
        KeyMeaning(key=f"{_UPDATE}/entropy/avg", metric="entropy/mean", over=_TOKENS,
                policies="learner"),
        KeyMeaning(key=f"{_UPDATE}/importance_weight/avg", metric="ratio/mean", over=_TOKENS,
                policies="learner / old"),
        KeyMeaning(key=f"{_UPDATE}/importance_weight/max", metric="ratio/max", over=_TOKENS,
                policies="learner / old"),
        KeyMeaning(key=f"{_UPDATE}/approx_kl/avg", metric="kl/old_policy/k1", formula="negated",
                estimator="k1", over=_TOKENS, policies="old | learner",
                structural_zero=_ONE_UPDATE,
                caveat="new minus old: the sign of verl's ppo_kl turned round"),
        KeyMeaning(key=f"{_UPDATE}/clip_ratio/avg", metric="clip/any_rate", over=_TOKENS,
                mask="only where the clip removes the gradient", policies="learner / old",
                when={"actor.use_cispo_loss": (False,)}, structural_zero=_ONE_UPDATE),
        KeyMeaning(key=f"{_UPDATE}/clip_ratio/avg", over=_TOKENS,
                when={"actor.use_cispo_loss": (True,)},
                caveat="ratios outside the band whatever the sign of A"),
        KeyMeaning(key=f"{_UPDATE}/dual_clip_ratio/avg", metric="clip/dual_rate", over=_TOKENS,
                policies="learner / old", structural_zero=_ONE_UPDATE),
        KeyMeaning(key=f"{_UPDATE}/logp_abs_diff/avg", over=_TOKENS, policies="learner - sampler",
                caveat="against the learner as it moves: staleness is in it"),
        KeyMeaning(key=f"{_UPDATE}/behave_imp_weight/avg", metric="correction/weight_mean",
                over="kept tokens", policies="old / sampler"),
        KeyMeaning(key=f"{_UPDATE}/behave_approx_kl/avg", estimator="k1", over="kept tokens",
                policies="old, sampler"),
        KeyMeaning(key=f"{_UPDATE}/behave_filtered_ratio/avg", metric="correction/capped_rate",
                over=_TOKENS),
        KeyMeaning(key=f"{_UPDATE}/compute_logp/kl_div_direct/avg", metric="mismatch/kl_k1",
                estimator="k1", over=_TOKENS, policies="sampler | learner"),
        KeyMeaning(key=f"{_UPDATE}/compute_logp/kl_div_dual/avg", metric="mismatch/kl_k3",
                estimator="k3", over=_TOKENS, policies="sampler | learner"),
        KeyMeaning(key=f"{_UPDATE}/version_stats/sample_staleness_theta_avg",
                metric="staleness/mean", unit="policy versions", over="tokens"),
        KeyMeaning(key=f"{_UPDATE}/version_stats/sample_staleness_theta_max",
                metric="staleness/max", unit="policy versions", over="tokens"),
        KeyMeaning(key=f"{_UPDATE}/actor_loss/avg", metric="optimizer/loss"),
        KeyMeaning(key=f"{_UPDATE}/grad_norm", metric="optimizer/grad_norm"),
        KeyMeaning(key=f"{_UPDATE}/lr", metric="optimizer/learning_rate"),
        KeyMeaning(key="rollout/reward", over="responses"),
        KeyMeaning(key="rollout/accepted", caveat="always 1: a mean of ones"),
        KeyMeaning(key="rollout/rejected", caveat="always 1: a mean of ones"),
        KeyMeaning(key="timeperf/train_step", metric="time/learn", unit="s"),
        KeyMeaning(key="timeperf/rollout", metric="time/rollout", unit="s"),
        *(KeyMeaning(key=f"{family}/<path>") for family in (_UPDATE, "ppo_actor", "timeperf",
                                                          "rollout", "eval-rollout",
                                                          "ppo_critic")),
    ),
    knobs=KNOBS,
)
