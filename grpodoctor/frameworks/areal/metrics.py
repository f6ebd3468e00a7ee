"""AReaL, checked against v2.0."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_UPDATE = "ppo_actor/update"
_TOKENS = "valid tokens, all ranks"
_WIDTH = "responses as long as the padded batch: the longest always counts"
_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)


def _loss(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    for flag, kind in (("actor.use_sapo_loss", "sapo"), ("actor.use_cispo_loss", "cispo")):
        if others.get(flag) is True:
            return kind
    return "gspo" if setting == "sequence" else "ppo_clip"


FRAMEWORK = Framework(
    name="areal",
    title="AReaL",
    dumps="set rollout.dump_to_file=True",
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
        Meaning(key="ppo_actor/task_reward/avg", metric="reward/mean", over="responses"),
        Meaning(key="ppo_actor/final_reward/avg", over="tokens",
                lie="per token, after the KL penalty"),
        Meaning(key="ppo_actor/advantages/<statistic>", over=_TOKENS),
        Meaning(key="ppo_actor/kl_rewards/<statistic>", policies="sampler | reference",
                lie="minus the coefficient times the KL"),
        Meaning(key=("ppo_actor/seq_len/avg", "ppo_actor/prompt_len/avg"), metric="length/mean",
                formula="difference", over="responses"),
        Meaning(key="ppo_actor/seq_len/<statistic>", lie="prompt and response together"),
        Meaning(key="ppo_actor/prompt_len/<statistic>"),
        Meaning(key=("ppo_actor/correct_seq_len/avg", "ppo_actor/prompt_len/avg"),
                metric="length/correct", formula="difference", over="responses of reward above 0",
                lie="less the mean prompt of all responses"),
        Meaning(key=("ppo_actor/incorrect_seq_len/avg", "ppo_actor/prompt_len/avg"),
                metric="length/incorrect", formula="difference", over="other responses",
                lie="less the mean prompt of all responses"),
        Meaning(key="ppo_actor/correct_seq_len/<statistic>"),
        Meaning(key="ppo_actor/incorrect_seq_len/<statistic>"),
        Meaning(key="ppo_actor/no_eos_ratios/<statistic>", over="responses",
                lie=f"no truncation rate: {_WIDTH}"),
        Meaning(key=f"{_UPDATE}/entropy/avg", metric="entropy/mean", over=_TOKENS,
                policies="learner"),
        Meaning(key=f"{_UPDATE}/importance_weight/avg", metric="ratio/mean", over=_TOKENS,
                policies="learner / old"),
        Meaning(key=f"{_UPDATE}/importance_weight/max", metric="ratio/max", over=_TOKENS,
                policies="learner / old"),
        Meaning(key=f"{_UPDATE}/approx_kl/avg", metric="kl/old_policy/k1", formula="negated",
                estimator="k1", over=_TOKENS, policies="old | learner",
                structural_zero=_ONE_UPDATE,
                lie="new minus old: the sign of verl's ppo_kl turned round"),
        Meaning(key=f"{_UPDATE}/clip_ratio/avg", metric="clip/any_rate", over=_TOKENS,
                mask="only where the clip removes the gradient", policies="learner / old",
                when={"actor.use_cispo_loss": (False,)}, structural_zero=_ONE_UPDATE),
        Meaning(key=f"{_UPDATE}/clip_ratio/avg", over=_TOKENS,
                when={"actor.use_cispo_loss": (True,)},
                lie="ratios outside the band whatever the sign of A"),
        Meaning(key=f"{_UPDATE}/dual_clip_ratio/avg", metric="clip/dual_rate", over=_TOKENS,
                policies="learner / old", structural_zero=_ONE_UPDATE),
        Meaning(key=f"{_UPDATE}/logp_abs_diff/avg", over=_TOKENS, policies="learner - sampler",
                lie="against the learner as it moves: staleness is in it"),
        Meaning(key=f"{_UPDATE}/behave_imp_weight/avg", metric="correction/weight_mean",
                over="kept tokens", policies="old / sampler"),
        Meaning(key=f"{_UPDATE}/behave_approx_kl/avg", estimator="k1", over="kept tokens",
                policies="old, sampler"),
        Meaning(key=f"{_UPDATE}/behave_filtered_ratio/avg", metric="correction/capped_rate",
                over=_TOKENS),
        Meaning(key=f"{_UPDATE}/compute_logp/kl_div_direct/avg", metric="mismatch/kl_k1",
                estimator="k1", over=_TOKENS, policies="sampler | learner"),
        Meaning(key=f"{_UPDATE}/compute_logp/kl_div_dual/avg", metric="mismatch/kl_k3",
                estimator="k3", over=_TOKENS, policies="sampler | learner"),
        Meaning(key=f"{_UPDATE}/version_stats/sample_staleness_theta_avg",
                metric="staleness/mean", unit="policy versions", over="tokens"),
        Meaning(key=f"{_UPDATE}/version_stats/sample_staleness_theta_max",
                metric="staleness/max", unit="policy versions", over="tokens"),
        Meaning(key=f"{_UPDATE}/actor_loss/avg", metric="optimizer/loss"),
        Meaning(key=f"{_UPDATE}/grad_norm", metric="optimizer/grad_norm"),
        Meaning(key=f"{_UPDATE}/lr", metric="optimizer/learning_rate"),
        Meaning(key="rollout/reward", over="responses"),
        Meaning(key="rollout/accepted", lie="always 1: a mean of ones"),
        Meaning(key="rollout/rejected", lie="always 1: a mean of ones"),
        Meaning(key="timeperf/train_step", metric="time/learn", unit="s"),
        Meaning(key="timeperf/rollout", metric="time/rollout", unit="s"),
        *(Meaning(key=f"{family}/<path>") for family in (_UPDATE, "ppo_actor", "timeperf",
                                                          "rollout", "eval-rollout",
                                                          "ppo_critic")),
    ),
    knobs=(
        KnobMeaning(key="actor.importance_sampling_level", knob="loss", of=_loss,
                    default="token"),
        KnobMeaning(key="actor.eps_clip", knob="clip_low"),
        KnobMeaning(key="actor.eps_clip_higher", knob="clip_high"),
        KnobMeaning(key="actor.eps_clip", knob="clip_high"),
        KnobMeaning(key="actor.kl_ctl", knob="kl_coefficient"),
        KnobMeaning(key="actor.ppo_n_minibatches", knob="updates_per_batch"),
        KnobMeaning(key="actor.optimizer.lr", knob="learning_rate"),
        KnobMeaning(key="gconfig.n_samples", knob="group_size"),
        KnobMeaning(key="train_dataset.batch_size", knob="prompts_per_batch"),
        KnobMeaning(key="gconfig.max_new_tokens", knob="max_length"),
        KnobMeaning(key="gconfig.temperature", knob="temperature"),
    ),
)
