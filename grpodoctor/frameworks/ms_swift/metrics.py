"""ms-swift's GRPO, checked in the source of commit 3602360a (v4.6).

It uses TRL's keys, some with other meanings. `frac_reward_zero_std` is the share of groups for any
`scale_rewards`; `reward_std` follows `scale_rewards`. `completions/clipped_ratio` is the share of
responses cut by the length limit. `logging.jsonl` ends with two rows about the whole run: the
summary of transformers, and the trainer's state with its log history.
"""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning, without_metric
from grpodoctor.frameworks.ms_swift.knobs import KNOBS
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.trl.metrics import SUMMARY_KEYS

_BATCH = "responses of the generation batch"
_OFF_POLICY = "set log_rollout_offpolicy_metrics=True"


FRAMEWORK = Framework(
    name="ms-swift",
    title="ms-swift",
    how_to_dump="set log_completions=True",
    aliases=("swift",),
    builds_on=("trl",),
    prefixes=("train/", "eval/"),
    row_keys=RowKeys(step=("step", "global_step/max_steps", "iteration", "global_step", "_step")),
    signature=(
        "entropy/threshold",
        "rollout_correction/<path>",
        "train_speed(s/it)",
        "memory(GiB)",
        "global_step/max_steps",
        "remaining_time",
    ),
    version_key="swift_version",
    defaults={"kl_in_reward": False, "scale_rewards": "group"},
    meanings=(
        KeyMeaning("entropy/mean", "entropy/mean", over="tokens of a response, then responses",
            policies="learner", how_to_log="set log_entropy=True"),
        KeyMeaning("entropy/max", over="responses"),
        KeyMeaning("entropy/min", over="responses"),
        *without_metric("entropy/threshold"),
        KeyMeaning("reward", "reward/mean", over=_BATCH, when={"kl_in_reward": (False,)}),
        KeyMeaning("reward", over=_BATCH, when={"kl_in_reward": (True,)},
            caveat="the reward minus beta times the KL, not the task's reward"),
        KeyMeaning("reward_std", "groups/reward_std", over="groups",
            when={"scale_rewards": ("group", "none", "gdpo")}),
        KeyMeaning("reward_std", "reward/std", over="the batch",
            when={"scale_rewards": ("batch",)}),
        KeyMeaning("frac_reward_zero_std", "groups/zero_variance_rate", over="groups"),
        KeyMeaning("rewards/<func>/mean", "reward/component/<func>/mean", over=_BATCH),
        KeyMeaning("rewards/<func>/std", "reward/component/<func>/std", over=_BATCH),
        KeyMeaning("completions/mean_length", "length/mean", over=_BATCH),
        KeyMeaning("completions/max_length", "length/max", over=_BATCH),
        KeyMeaning("completions/min_length", "length/min", over=_BATCH),
        KeyMeaning("completion_length", "length/mean", over=_BATCH, until="3.4"),
        KeyMeaning("response_clip_ratio", "length/truncated_rate", over=_BATCH, until="3.4",
            caveat="the share of responses cut by the length limit, not a clip fraction"),
        KeyMeaning("rewards/<func>", "reward/component/<func>/mean", over=_BATCH, until="3.4"),
        KeyMeaning("completions/clipped_ratio", "length/truncated_rate", over=_BATCH,
            caveat="the share of responses cut by the length limit, not a clip fraction"),
        KeyMeaning("kl", "kl/reference/k3", estimator="k3", over="tokens",
            policies="learner | reference", when={"kl_in_reward": (False,)}),
        KeyMeaning("kl", policies="learner | reference", when={"kl_in_reward": (True,)},
            caveat="the sum of k1 over a response, not a mean over tokens"),
        KeyMeaning("clip_ratio/low_mean", "clip/low_rate", over="tokens", policies="learner / old",
            structural_zero=RATIO_IS_ONE),
        KeyMeaning("clip_ratio/high_mean", "clip/high_rate", over="tokens",
            policies="learner / old", structural_zero=RATIO_IS_ONE),
        KeyMeaning("clip_ratio/region_mean", "clip/any_rate", over="tokens",
            policies="learner / old", structural_zero=RATIO_IS_ONE),
        KeyMeaning("clip_ratio/low_min", over="ranks"),
        KeyMeaning("clip_ratio/high_max", over="ranks",
            caveat="the maximum over ranks, not over responses"),
        KeyMeaning("clip_ratio", "clip/any_rate", over="tokens", policies="learner / old"),
        KeyMeaning("cispo_clip_ratio", "clip/high_rate", over="tokens", policies="learner / old",
            caveat="tokens whose weight is capped; they still have a gradient"),
        KeyMeaning("rollout_correction/kl", "mismatch/kl_k1", estimator="k1", over="tokens",
            policies="sampler | old", how_to_log=_OFF_POLICY),
        KeyMeaning("rollout_correction/k3_kl", "mismatch/kl_k3", estimator="k3", over="tokens",
            policies="sampler | old", how_to_log=_OFF_POLICY),
        KeyMeaning("rollout_correction/chi2_token", "mismatch/chi2", over="tokens"),
        KeyMeaning("rollout_correction/chi2_seq",
            caveat="uses the geometric mean of a response's ratios, not their product"),
        KeyMeaning("rollout_correction/is_weight_mean", "correction/weight_mean", over="tokens",
            caveat="the weight as applied"),
        KeyMeaning("rollout_correction/clipped_frac", "correction/capped_rate", over="tokens"),
        KeyMeaning("rollout_correction/ess", caveat="computed from the weights as applied"),
        *without_metric("rollout_correction/<path>"),
        KeyMeaning("loss", "optimizer/loss"),
        KeyMeaning("grad_norm", "optimizer/grad_norm"),
        KeyMeaning("learning_rate", "optimizer/learning_rate"),
        KeyMeaning("train_speed(s/it)", "time/step", unit="s"),
        KeyMeaning("num_turns", "environment/turns_mean", over=_BATCH),
        KeyMeaning("teacher_kl", "kl/teacher", estimator="k3", over="tokens",
            policies="old | teacher"),
        KeyMeaning("eval_reward", "reward/heldout", over="held-out responses",
            how_to_log="give a val_dataset and set eval_strategy=steps"),
        *without_metric("epoch", "memory(GiB)", "remaining_time", "elapsed_time", "percentage",
            "step_time", "fipo/<path>", "sdar/<path>", "rlsd_lambda", "eval_<path>", "num_tokens",
            "train_speed(iter/s)", *SUMMARY_KEYS, "best_metric", "memory", "memory/<path>"),
    ),
    knobs=KNOBS,
)
