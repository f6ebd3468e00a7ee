"""NeMo RL, checked in the source of commit 7ea279ab (after v0.7).

Losses and `kl_penalty` are means over tokens with `loss_fn.token_level_loss`, otherwise over
responses; the diagnostics are means over tokens. `baseline_reward/pct_*` are percentages of the
responses of the training batch whose baseline is exactly 0 or 1. The baseline leaves out the
response itself by default, and with dynamic sampling the batch has only groups with variance.
`is_oob_ratio` counts tokens, or responses with seq-mask-tis. A row is one training step.
"""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, by_estimator, without_metric
from grpodoctor.frameworks.nemo_rl.knobs import KNOBS

_TOKENS = "loss tokens, all ranks, then updates"
_SAMPLED = "only groups that dynamic sampling kept, if it is enabled"
_KIND = "loss_fn.reference_policy_kl_type"
_KINDS = {kind: (kind,) for kind in ("k1", "k2", "k3")}


FRAMEWORK = Framework(
    name="nemo-rl",
    title="NeMo RL",
    aliases=("nemo",),
    logs_unused_weights=True,
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
        KeyMeaning("train/approx_entropy", "entropy/sampled", over=_TOKENS, policies="learner",
            caveat="the negative weighted mean log-probability of the sampled tokens, not the "
            "entropy"),
        *by_estimator("train/kl_penalty", "kl/reference/", _KIND, _KINDS, over=_TOKENS,
            policies="learner | reference"),
        *by_estimator("train/gen_kl_error", "mismatch/kl_", _KIND, _KINDS, over=_TOKENS,
            policies="sampler | old"),
        KeyMeaning("train/policy_kl_error", over=_TOKENS, policies="old | sampler",
            caveat="estimated from the sampler's tokens, so it is biased in this direction"),
        KeyMeaning("train/js_divergence_error", over=_TOKENS),
        KeyMeaning("train/token_mult_prob_error", "mismatch/logprob_diff_mean", formula="log",
            over=_TOKENS, policies="old - sampler",
            caveat="the mean of exp(|log p - log p'|); its logarithm is an upper bound"),
        KeyMeaning("train/max_seq_mult_prob_error", "mismatch/logprob_diff_mean/worst_sequence",
            formula="log", policies="old - sampler", zero_is_absent=True,
            caveat="the mean of exp(|log p - log p'|) of the worst response; its logarithm is an "
            "upper bound"),
        KeyMeaning("train/<statistic>_seq_mult_prob_error", policies="old - sampler"),
        KeyMeaning("train/sampling_importance_ratio", "correction/weight_mean", over=_TOKENS,
            caveat="measured after truncation, if any"),
        KeyMeaning("train/is_oob_ratio", "correction/capped_rate",
            over="loss tokens; responses with seq-mask-tis"),
        KeyMeaning("train/probs_ratio", "ratio/mean", over=_TOKENS, policies="learner / old"),
        KeyMeaning("train/probs_ratio_max", "ratio/max", over=_TOKENS, policies="learner / old"),
        KeyMeaning("train/probs_ratio_<path>", policies="learner / old"),
        KeyMeaning("train/reward", "reward/mean", over="responses before any filter"),
        KeyMeaning("train/filtered_reward", over="responses after dynamic sampling"),
        KeyMeaning("train/baseline_reward/pct_0", "groups/all_incorrect_rate", factor=0.01,
            unit="percent", over="responses of the training batch", mask=_SAMPLED,
            caveat="by the baseline, which by default leaves out the response itself"),
        KeyMeaning("train/baseline_reward/pct_1", "groups/all_correct_rate", factor=0.01,
            unit="percent", over="responses of the training batch", mask=_SAMPLED,
            caveat="by the baseline, which by default leaves out the response itself"),
        KeyMeaning(("train/baseline_reward/pct_0", "train/baseline_reward/pct_1"),
            "groups/zero_variance_rate", formula="sum", factor=0.01, mask=_SAMPLED,
            over="responses of the training batch"),
        KeyMeaning("train/baseline_reward/pct_mixed", "groups/effective_rate", factor=0.01,
            unit="percent", over="responses of the training batch", mask=_SAMPLED),
        KeyMeaning("train/advantages/mean", "advantage/mean", over="loss tokens"),
        KeyMeaning("train/advantages/max", "advantage/max", over="loss tokens"),
        KeyMeaning("train/advantages/min", "advantage/min", over="loss tokens"),
        KeyMeaning("train/advantages/<statistic>", over="loss tokens"),
        KeyMeaning("train/mean_prompt_length", "length/prompt_mean", over="responses"),
        KeyMeaning("train/r3/routed_experts_fallback_token_route_fraction",
            "experts/replay_fallback_rate", over="tokens x layers"),
        KeyMeaning("train/mean_gen_tokens_per_sample", "length/mean", over="responses"),
        KeyMeaning("train/max_gen_tokens_per_sample", "length/max", over="responses"),
        *without_metric("train/mean_total_tokens_per_sample"),
        KeyMeaning("train/truncation_rate", "length/truncated_rate", over="responses"),
        KeyMeaning("train/natural_termination_rate", over="responses"),
        KeyMeaning("train/loss", "optimizer/loss"),
        KeyMeaning("train/grad_norm", "optimizer/grad_norm", over="the last update"),
        KeyMeaning("train/lr", "optimizer/learning_rate"),
        KeyMeaning("train/avg_trajectory_age", "staleness/mean", unit="training steps",
            over="trajectories"),
        KeyMeaning("train/dynamic_sampling_num_gen_batches", "groups/generated_per_kept",
            over="batches"),
        KeyMeaning("timing/train/total_step_time", "time/step", unit="s"),
        KeyMeaning("timing/train/generation", "time/rollout", unit="s"),
        KeyMeaning("timing/train/policy_training", "time/learn", unit="s"),
        KeyMeaning("validation/accuracy", "accuracy/heldout", over="validation responses",
            how_to_log="set grpo.val_period above 0"),
        *without_metric("train/<path>", "timing/<path>", "performance/<path>", "validation/<path>",
            "rollout/<path>"),
        KeyMeaning("console/Loss", "optimizer/loss"),
        *by_estimator("console/Generation KL Error", "mismatch/kl_", _KIND, _KINDS, over=_TOKENS,
            policies="sampler | old"),
        KeyMeaning("console/Avg Reward", "reward/mean", over="responses"),
        KeyMeaning("console/Mean Generation Length", "length/mean", over="responses"),
        KeyMeaning("console/Avg Trajectory Age", "staleness/mean", unit="training steps",
            over="trajectories"),
        KeyMeaning("console/Validation Accuracy", "accuracy/heldout", over="validation responses",
            how_to_log="set grpo.val_period above 0"),
        *without_metric("console/<path>"),
    ),
    knobs=KNOBS,
)
