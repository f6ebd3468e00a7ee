"""ms-swift's GRPO, whose keys are TRL's with meanings of their own. Checked against v4.6."""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning
from grpodoctor.frameworks.ms_swift.knobs import KNOBS
from grpodoctor.frameworks.row_keys import RowKeys

_BATCH = "responses of the generation batch"
_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)
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
        KeyMeaning(key="entropy/mean", metric="entropy/mean", over="tokens of a response, then responses",
                policies="learner", how_to_log="set log_entropy=True"),
        KeyMeaning(key="entropy/max", over="responses"),
        KeyMeaning(key="entropy/min", over="responses"),
        KeyMeaning(key="entropy/threshold"),
        KeyMeaning(key="reward", metric="reward/mean", over=_BATCH, when={"kl_in_reward": (False,)}),
        KeyMeaning(key="reward", over=_BATCH, when={"kl_in_reward": (True,)},
                caveat="minus beta times the KL: not the task's reward"),
        KeyMeaning(key="reward_std", metric="groups/reward_std", over="groups",
                when={"scale_rewards": ("group", "none", "gdpo")}),
        KeyMeaning(key="reward_std", metric="reward/std", over="the batch",
                when={"scale_rewards": ("batch",)}),
        KeyMeaning(key="frac_reward_zero_std", metric="groups/zero_variance_rate", over="responses",
                when={"scale_rewards": ("group", "none", "gdpo")}),
        KeyMeaning(key="frac_reward_zero_std", when={"scale_rewards": ("batch",)},
                caveat="under scale_rewards=batch it is 0 or 1 and says nothing of groups"),
        KeyMeaning(key="rewards/<func>/mean", metric="reward/component/<func>/mean", over=_BATCH),
        KeyMeaning(key="rewards/<func>/std", metric="reward/component/<func>/std", over=_BATCH),
        KeyMeaning(key="completions/mean_length", metric="length/mean", over=_BATCH),
        KeyMeaning(key="completions/max_length", metric="length/max", over=_BATCH),
        KeyMeaning(key="completions/min_length", over=_BATCH),
        KeyMeaning(key="completion_length", metric="length/mean", over=_BATCH, until="3.4"),
        KeyMeaning(key="response_clip_ratio", metric="length/truncated_rate", over=_BATCH,
                until="3.4", caveat="responses cut by the length limit, no clip of a ratio"),
        KeyMeaning(key="rewards/<func>", metric="reward/component/<func>/mean", over=_BATCH,
                until="3.4"),
        KeyMeaning(key="completions/clipped_ratio", metric="length/truncated_rate", over=_BATCH,
                caveat="responses cut by the length limit, no clip of a ratio"),
        KeyMeaning(key="kl", metric="kl/reference/k3", estimator="k3", over="tokens",
                policies="learner | reference", when={"kl_in_reward": (False,)}),
        KeyMeaning(key="kl", policies="learner | reference", when={"kl_in_reward": (True,)},
                caveat="the sum of k1 over a response, no mean of tokens"),
        KeyMeaning(key="clip_ratio/low_mean", metric="clip/low_rate", over="tokens",
                policies="learner / old", structural_zero=_ONE_UPDATE),
        KeyMeaning(key="clip_ratio/high_mean", metric="clip/high_rate", over="tokens",
                policies="learner / old", structural_zero=_ONE_UPDATE),
        KeyMeaning(key="clip_ratio/region_mean", metric="clip/any_rate", over="tokens",
                policies="learner / old", structural_zero=_ONE_UPDATE),
        KeyMeaning(key="clip_ratio/low_min", over="ranks"),
        KeyMeaning(key="clip_ratio/high_max", over="ranks", caveat="of ranks, not of responses"),
        KeyMeaning(key="clip_ratio", metric="clip/any_rate", over="tokens", policies="learner / old"),
        KeyMeaning(key="cispo_clip_ratio", metric="clip/high_rate", over="tokens",
                policies="learner / old",
                caveat="tokens whose weight is bounded; they keep their gradient"),
        KeyMeaning(key="rollout_correction/kl", metric="mismatch/kl_k1", estimator="k1",
                over="tokens", policies="sampler | old", how_to_log=_OFF_POLICY),
        KeyMeaning(key="rollout_correction/k3_kl", metric="mismatch/kl_k3", estimator="k3",
                over="tokens", policies="sampler | old", how_to_log=_OFF_POLICY),
        KeyMeaning(key="rollout_correction/chi2_token", metric="mismatch/chi2", over="tokens"),
        KeyMeaning(key="rollout_correction/chi2_seq",
                caveat="of the geometric mean of a response's ratios, not of their product"),
        KeyMeaning(key="rollout_correction/is_weight_mean", metric="correction/weight_mean",
                over="tokens", caveat="as applied"),
        KeyMeaning(key="rollout_correction/clipped_frac", metric="correction/capped_rate",
                over="tokens"),
        KeyMeaning(key="rollout_correction/ess", caveat="of the weights as applied"),
        KeyMeaning(key="rollout_correction/<path>"),
        KeyMeaning(key="loss", metric="optimizer/loss"),
        KeyMeaning(key="grad_norm", metric="optimizer/grad_norm"),
        KeyMeaning(key="learning_rate", metric="optimizer/learning_rate"),
        KeyMeaning(key="train_speed(s/it)", metric="time/step", unit="s"),
        *(KeyMeaning(key=key) for key in (
            "num_turns", "epoch", "memory(GiB)", "remaining_time", "elapsed_time", "percentage",
            "step_time", "fipo/<path>", "sdar/<path>", "teacher_kl", "eval_<path>", "num_tokens",
            "train_speed(iter/s)")),
    ),
    knobs=KNOBS,
)
