"""NeMo RL, checked after v0.7."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.vocabulary.knobs import Setting

_TOKENS = "loss tokens, all ranks, then updates"
_KIND = "loss_fn.reference_policy_kl_type"


def _loss(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    if others.get("loss_fn.use_cispo") is True:
        return "cispo"
    return "gspo" if setting is True else "ppo_clip"


def _advantage(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    if setting is True:
        return "group"
    return "leave_one_out" if others.get("grpo.use_leave_one_out_baseline", True) else "centred"


FRAMEWORK = Framework(
    name="nemo-rl",
    title="NeMo RL",
    family=("nemo",),
    signature=(
        "train/token_mult_prob_error",
        "train/gen_kl_error",
        "train/approx_entropy",
        "train/baseline_reward/pct_0",
        "train/mean_gen_tokens_per_sample",
        "train/probs_ratio_clamped",
        "console/Generation KL Error",
    ),
    prefixes=(),
    version_key="nemo_rl_version",
    defaults={_KIND: "k3", "loss_fn.truncated_importance_sampling_type": "none"},
    meanings=(
        Meaning(key="train/approx_entropy", metric="entropy/sampled", over=_TOKENS,
                policies="learner",
                lie="minus the weighted mean log-probability of the sampled tokens, not the "
                    "entropy"),
        *(Meaning(key="train/kl_penalty", metric=f"kl/reference/{kind}", estimator=kind,
                  over=_TOKENS, policies="learner | reference", when={_KIND: (kind,)})
          for kind in ("k1", "k2", "k3")),
        *(Meaning(key="train/gen_kl_error", metric=f"mismatch/kl_{kind}", estimator=kind,
                  over=_TOKENS, policies="sampler | old", when={_KIND: (kind,)})
          for kind in ("k1", "k3")),
        Meaning(key="train/policy_kl_error", over=_TOKENS, policies="old | sampler",
                lie="taken on the sampler's tokens: biased in this direction"),
        Meaning(key="train/js_divergence_error", over=_TOKENS),
        Meaning(key="train/token_mult_prob_error", metric="mismatch/logprob_diff_mean",
                formula="log", over=_TOKENS, policies="old - sampler",
                lie="the mean of exp|log p - log p'|: its logarithm is an upper bound"),
        Meaning(key="train/max_seq_mult_prob_error", policies="old - sampler"),
        Meaning(key="train/mean_seq_mult_prob_error", policies="old - sampler"),
        Meaning(key="train/min_seq_mult_prob_error", policies="old - sampler"),
        Meaning(key="train/sampling_importance_ratio", metric="correction/weight_mean",
                over=_TOKENS, lie="after the truncation, where there is one"),
        Meaning(key="train/is_oob_ratio", metric="correction/capped_rate", over=_TOKENS),
        Meaning(key="train/probs_ratio", metric="ratio/mean", over=_TOKENS,
                policies="learner / old"),
        Meaning(key="train/probs_ratio_max", metric="ratio/max", over=_TOKENS,
                policies="learner / old"),
        Meaning(key="train/probs_ratio_<path>", policies="learner / old"),
        Meaning(key="train/reward", metric="reward/mean", over="responses before any filter"),
        Meaning(key="train/filtered_reward", over="responses after dynamic sampling"),
        Meaning(key="train/baseline_reward/pct_0", metric="groups/all_incorrect_rate",
                factor=0.01, unit="percent", over="groups, by their baseline"),
        Meaning(key="train/baseline_reward/pct_1", metric="groups/all_correct_rate", factor=0.01,
                unit="percent", over="groups, by their baseline"),
        Meaning(key="train/baseline_reward/pct_mixed", metric="groups/effective_rate",
                factor=0.01, unit="percent", over="groups, by their baseline"),
        Meaning(key="train/advantages/<statistic>", over="tokens"),
        Meaning(key="train/mean_gen_tokens_per_sample", metric="length/mean", over="responses"),
        Meaning(key="train/max_gen_tokens_per_sample", metric="length/max", over="responses"),
        Meaning(key="train/mean_total_tokens_per_sample"),
        Meaning(key="train/truncation_rate", metric="length/truncated_rate", over="responses"),
        Meaning(key="train/natural_termination_rate", over="responses"),
        Meaning(key="train/loss", metric="optimizer/loss"),
        Meaning(key="train/grad_norm", metric="optimizer/grad_norm", over="the last update"),
        Meaning(key="train/lr", metric="optimizer/learning_rate"),
        Meaning(key="train/avg_trajectory_age", metric="staleness/mean", unit="training steps",
                over="trajectories"),
        Meaning(key="train/dynamic_sampling_num_gen_batches", metric="groups/generated_per_kept",
                over="batches"),
        Meaning(key="timing/train/total_step_time", metric="time/step", unit="s"),
        Meaning(key="timing/train/generation", metric="time/rollout", unit="s"),
        Meaning(key="timing/train/policy_training", metric="time/learn", unit="s"),
        Meaning(key="validation/accuracy", metric="accuracy/heldout", over="validation responses",
                how="set grpo.val_period above 0"),
        *(Meaning(key=f"{family}/<path>") for family in ("train", "timing", "performance",
                                                          "validation", "rollout")),
        Meaning(key="console/Loss", metric="optimizer/loss"),
        *(Meaning(key="console/Generation KL Error", metric=f"mismatch/kl_{kind}", estimator=kind,
                  over=_TOKENS, policies="sampler | old", when={_KIND: (kind,)})
          for kind in ("k1", "k3")),
        Meaning(key="console/Avg Reward", metric="reward/mean", over="responses"),
        Meaning(key="console/Mean Generation Length", metric="length/mean", over="responses"),
        Meaning(key="console/Avg Trajectory Age", metric="staleness/mean", unit="training steps",
                over="trajectories"),
        Meaning(key="console/<path>"),
    ),
    knobs=(
        KnobMeaning(key="loss_fn.sequence_level_importance_ratios", knob="loss", of=_loss),
        KnobMeaning(key="loss_fn.token_level_loss", knob="aggregation",
                    of={True: "token-mean", False: "sequence-mean"}),
        KnobMeaning(key="loss_fn.ratio_clip_min", knob="clip_low"),
        KnobMeaning(key="loss_fn.ratio_clip_max", knob="clip_high"),
        KnobMeaning(key="loss_fn.reference_policy_kl_penalty", knob="kl_coefficient"),
        KnobMeaning(key="loss_fn.truncated_importance_sampling_type", knob="correction",
                    of={"tis": "tis_token", "icepop": "icepop", "seq-mask-tis": "geo_mask"}),
        KnobMeaning(key="loss_fn.truncated_importance_sampling_ratio", knob="correction_cap"),
        KnobMeaning(key="grpo.normalize_rewards", knob="advantage", of=_advantage),
        KnobMeaning(key="grpo.use_dynamic_sampling", knob="dynamic_sampling"),
        KnobMeaning(key="grpo.overlong_filtering", knob="overlong",
                    of={True: "mask", False: "none"}),
        KnobMeaning(key="grpo.num_generations_per_prompt", knob="group_size"),
        KnobMeaning(key="grpo.num_prompts_per_step", knob="prompts_per_batch"),
        KnobMeaning(key="policy.optimizer.kwargs.lr", knob="learning_rate"),
        KnobMeaning(key="policy.generation.max_new_tokens", knob="max_length"),
        KnobMeaning(key="policy.generation.temperature", knob="temperature"),
    ),
)
