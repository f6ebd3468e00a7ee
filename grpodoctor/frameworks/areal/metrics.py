"""AReaL's statistics, checked in the source of commit cbff54d6 (v2.0).

Rewards and lengths are means over responses; advantages, entropy, ratios and clip shares are means
over all valid tokens; `behave_*` are means over the tokens that rejection sampling keeps.
`no_eos_ratios` compares prompt plus response with the width of the padded batch, so it is no
truncation rate. A row is one training step. Version 0 has other scopes (`grpo_actor`) and no
`update` scope.
"""

from __future__ import annotations

from grpodoctor.frameworks.areal.knobs import KNOBS
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning, without_metric
from grpodoctor.frameworks.row_keys import RowKeys

_ACTOR = "<scope>actor"
"""A scope of the recipe: `ppo_actor`, or `grpo_actor` in older recipes."""
_UPDATES = (f"{_ACTOR}/update", _ACTOR)
"""Scopes of an update's statistics; older versions log them in the actor's scope."""
_TOKENS = "valid tokens, all ranks"


def _of_update(scope: str) -> tuple[KeyMeaning, ...]:
    return (
        KeyMeaning(f"{scope}/entropy/avg", "entropy/mean", over=_TOKENS, policies="learner"),
        KeyMeaning(f"{scope}/importance_weight/avg", "ratio/mean", over=_TOKENS,
            policies="learner / old"),
        KeyMeaning(f"{scope}/importance_weight/max", "ratio/max", over=_TOKENS,
            policies="learner / old"),
        KeyMeaning(f"{scope}/approx_kl/avg", "kl/old_policy/k1", formula="negated",
            estimator="k1", over=_TOKENS, policies="old | learner", structural_zero=RATIO_IS_ONE,
            caveat="new minus old: the negative of verl's ppo_kl"),
        KeyMeaning(f"{scope}/clip_ratio/avg", "clip/any_rate", over=_TOKENS,
            mask="only where the clip removes the gradient", policies="learner / old",
            when={"actor.use_cispo_loss": (False,)}, structural_zero=RATIO_IS_ONE),
        KeyMeaning(f"{scope}/clip_ratio/avg", over=_TOKENS,
            when={"actor.use_cispo_loss": (True,)},
            caveat="counts ratios outside the bounds for any sign of A"),
        KeyMeaning(f"{scope}/dual_clip_ratio/avg", "clip/dual_rate", over=_TOKENS,
            policies="learner / old", structural_zero=RATIO_IS_ONE),
        KeyMeaning(f"{scope}/logp_abs_diff/avg", over=_TOKENS, policies="learner - sampler",
            caveat="compares with the updated learner, so it includes staleness"),
        KeyMeaning(f"{scope}/behave_imp_weight/avg", "correction/weight_mean", over="kept tokens",
            policies="old / sampler",
            caveat="the geometric mean over a response where whole responses are kept or dropped"),
        KeyMeaning(f"{scope}/behave_approx_kl/avg", estimator="k1", over="kept tokens",
            policies="old, sampler"),
        KeyMeaning(f"{scope}/behave_filtered_ratio/avg", "correction/capped_rate", over=_TOKENS),
        KeyMeaning(f"{scope}/compute_logp/kl_div_direct/avg", "mismatch/kl_k1", estimator="k1",
            over=_TOKENS, policies="sampler | learner"),
        KeyMeaning(f"{scope}/compute_logp/kl_div_dual/avg", "mismatch/kl_k3", estimator="k3",
            over=_TOKENS, policies="sampler | learner"),
        KeyMeaning(f"{scope}/version_stats/sample_staleness_theta_avg", "staleness/mean",
            unit="policy versions", over="tokens"),
        KeyMeaning(f"{scope}/version_stats/sample_staleness_theta_max", "staleness/max",
            unit="policy versions", over="tokens"),
        KeyMeaning(f"{scope}/rkl_loss/avg", "kl/teacher", over=_TOKENS,
            policies="learner | teacher"),
        KeyMeaning(f"{scope}/update_successful", "optimizer/skipped_rate", formula="one-minus",
            over="updates"),
        KeyMeaning(f"{scope}/actor_loss/avg", "optimizer/loss"),
        KeyMeaning(f"{scope}/grad_norm", "optimizer/grad_norm"),
        KeyMeaning(f"{scope}/lr", "optimizer/learning_rate"),
    )


FRAMEWORK = Framework(
    name="areal",
    title="AReaL",
    how_to_dump="set rollout.dump_to_file=True",
    row_keys=RowKeys(step=("global_step", "step", "_step")),
    signature=(
        f"{_ACTOR}/task_reward/avg",
        f"{_ACTOR}/no_eos_ratios/avg",
        *(f"{scope}/{name}/avg" for scope in _UPDATES
          for name in ("importance_weight", "behave_imp_weight")),
        "timeperf/<path>",
    ),
    version_key="areal_version",
    weights_tokens=True,
    defaults={"actor.use_cispo_loss": False},
    meanings=(
        KeyMeaning(f"{_ACTOR}/task_reward/avg", "reward/mean", over="responses"),
        KeyMeaning(f"{_ACTOR}/final_reward/avg", over="tokens",
            caveat="the reward per token, measured after the KL penalty"),
        KeyMeaning(f"{_ACTOR}/task_reward/max", "reward/max", over="responses"),
        KeyMeaning(f"{_ACTOR}/task_reward/min", "reward/min", over="responses"),
        KeyMeaning(f"{_ACTOR}/advantages/avg", "advantage/mean", over=_TOKENS),
        KeyMeaning(f"{_ACTOR}/advantages/max", "advantage/max", over=_TOKENS),
        KeyMeaning(f"{_ACTOR}/advantages/min", "advantage/min", over=_TOKENS),
        KeyMeaning(f"{_ACTOR}/kl_rewards/<statistic>", policies="sampler | reference",
            caveat="the KL times the negative coefficient"),
        KeyMeaning((f"{_ACTOR}/seq_len/avg", f"{_ACTOR}/prompt_len/avg"), "length/mean",
            formula="difference", over="responses"),
        KeyMeaning(f"{_ACTOR}/prompt_len/avg", "length/prompt_mean", over="responses"),
        KeyMeaning(f"{_ACTOR}/seq_len/<statistic>",
            caveat="the length of prompt and response together"),
        *without_metric(f"{_ACTOR}/prompt_len/<statistic>"),
        KeyMeaning((f"{_ACTOR}/correct_seq_len/avg", f"{_ACTOR}/prompt_len/avg"), "length/correct",
            formula="difference", over="responses of reward above 0",
            caveat="minus the mean prompt length of all responses"),
        KeyMeaning((f"{_ACTOR}/incorrect_seq_len/avg", f"{_ACTOR}/prompt_len/avg"),
            "length/incorrect", formula="difference", over="other responses",
            caveat="minus the mean prompt length of all responses"),
        *without_metric(f"{_ACTOR}/correct_seq_len/<statistic>",
            f"{_ACTOR}/incorrect_seq_len/<statistic>"),
        KeyMeaning(f"{_ACTOR}/no_eos_ratios/<statistic>", over="responses",
            caveat="counts responses as long as the padded batch, so the longest always counts"),
        *(row for scope in _UPDATES for row in _of_update(scope)),
        KeyMeaning("rollout/reward", over="responses"),
        KeyMeaning("rollout/accepted", caveat="always 1, because it is a mean of ones"),
        KeyMeaning("rollout/rejected", caveat="always 1, because it is a mean of ones"),
        KeyMeaning("timeperf/train_step", "time/learn", unit="s"),
        KeyMeaning("timeperf/rollout", "time/rollout", unit="s"),
        *without_metric(f"{_ACTOR}/<path>", "timeperf/<path>",
            "rollout/<path>", "eval-rollout/<path>", "ppo_critic/<path>"),
    ),
    knobs=KNOBS,
)
