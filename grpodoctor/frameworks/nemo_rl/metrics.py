"""NeMo RL, checked after v0.7."""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning
from grpodoctor.frameworks.nemo_rl.knobs import KNOBS

_TOKENS = "loss tokens, all ranks, then updates"
_KIND = "loss_fn.reference_policy_kl_type"


FRAMEWORK = Framework(
    name="nemo-rl",
    title="NeMo RL",
    aliases=("nemo",),
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
        KeyMeaning(key="train/approx_entropy", metric="entropy/sampled", over=_TOKENS,
                policies="learner",
                caveat="the negative weighted mean log-probability of the sampled tokens, not the "
                    "entropy"),
        *(KeyMeaning(key="train/kl_penalty", metric=f"kl/reference/{kind}", estimator=kind,
                  over=_TOKENS, policies="learner | reference", when={_KIND: (kind,)})
          for kind in ("k1", "k2", "k3")),
        *(KeyMeaning(key="train/gen_kl_error", metric=f"mismatch/kl_{kind}", estimator=kind,
                  over=_TOKENS, policies="sampler | old", when={_KIND: (kind,)})
          for kind in ("k1", "k3")),
        KeyMeaning(key="train/policy_kl_error", over=_TOKENS, policies="old | sampler",
                caveat="estimated from the sampler's tokens, so it is biased in this direction"),
        KeyMeaning(key="train/js_divergence_error", over=_TOKENS),
        KeyMeaning(key="train/token_mult_prob_error", metric="mismatch/logprob_diff_mean",
                formula="log", over=_TOKENS, policies="old - sampler",
                caveat="the mean of exp(|log p - log p'|); its logarithm is an upper bound"),
        KeyMeaning(key="train/max_seq_mult_prob_error", policies="old - sampler"),
        KeyMeaning(key="train/mean_seq_mult_prob_error", policies="old - sampler"),
        KeyMeaning(key="train/min_seq_mult_prob_error", policies="old - sampler"),
        KeyMeaning(key="train/sampling_importance_ratio", metric="correction/weight_mean",
                over=_TOKENS, caveat="measured after truncation, if any"),
        KeyMeaning(key="train/is_oob_ratio", metric="correction/capped_rate", over=_TOKENS),
        KeyMeaning(key="train/probs_ratio", metric="ratio/mean", over=_TOKENS,
                policies="learner / old"),
        KeyMeaning(key="train/probs_ratio_max", metric="ratio/max", over=_TOKENS,
                policies="learner / old"),
        KeyMeaning(key="train/probs_ratio_<path>", policies="learner / old"),
        KeyMeaning(key="train/reward", metric="reward/mean", over="responses before any filter"),
        KeyMeaning(key="train/filtered_reward", over="responses after dynamic sampling"),
        KeyMeaning(key="train/baseline_reward/pct_0", metric="groups/all_incorrect_rate",
                factor=0.01, unit="percent", over="groups, by their baseline reward"),
        KeyMeaning(key="train/baseline_reward/pct_1", metric="groups/all_correct_rate", factor=0.01,
                unit="percent", over="groups, by their baseline reward"),
        KeyMeaning(key="train/baseline_reward/pct_mixed", metric="groups/effective_rate",
                factor=0.01, unit="percent", over="groups, by their baseline reward"),
        KeyMeaning(key="train/advantages/<statistic>", over="tokens"),
        KeyMeaning(key="train/mean_gen_tokens_per_sample", metric="length/mean", over="responses"),
        KeyMeaning(key="train/max_gen_tokens_per_sample", metric="length/max", over="responses"),
        KeyMeaning(key="train/mean_total_tokens_per_sample"),
        KeyMeaning(key="train/truncation_rate", metric="length/truncated_rate", over="responses"),
        KeyMeaning(key="train/natural_termination_rate", over="responses"),
        KeyMeaning(key="train/loss", metric="optimizer/loss"),
        KeyMeaning(key="train/grad_norm", metric="optimizer/grad_norm", over="the last update"),
        KeyMeaning(key="train/lr", metric="optimizer/learning_rate"),
        KeyMeaning(key="train/avg_trajectory_age", metric="staleness/mean", unit="training steps",
                over="trajectories"),
        KeyMeaning(key="train/dynamic_sampling_num_gen_batches", metric="groups/generated_per_kept",
                over="batches"),
        KeyMeaning(key="timing/train/total_step_time", metric="time/step", unit="s"),
        KeyMeaning(key="timing/train/generation", metric="time/rollout", unit="s"),
        KeyMeaning(key="timing/train/policy_training", metric="time/learn", unit="s"),
        KeyMeaning(key="validation/accuracy", metric="accuracy/heldout", over="validation responses",
                how_to_log="set grpo.val_period above 0"),
        *(KeyMeaning(key=f"{family}/<path>") for family in ("train", "timing", "performance",
                                                          "validation", "rollout")),
        KeyMeaning(key="console/Loss", metric="optimizer/loss"),
        *(KeyMeaning(key="console/Generation KL Error", metric=f"mismatch/kl_{kind}", estimator=kind,
                  over=_TOKENS, policies="sampler | old", when={_KIND: (kind,)})
          for kind in ("k1", "k3")),
        KeyMeaning(key="console/Avg Reward", metric="reward/mean", over="responses"),
        KeyMeaning(key="console/Mean Generation Length", metric="length/mean", over="responses"),
        KeyMeaning(key="console/Avg Trajectory Age", metric="staleness/mean", unit="training steps",
                over="trajectories"),
        KeyMeaning(key="console/<path>"),
    ),
    knobs=KNOBS,
)
