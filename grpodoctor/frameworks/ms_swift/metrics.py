"""ms-swift's GRPO, whose keys are TRL's with meanings of their own. Checked against v4.6."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_BATCH = "responses of the generation batch"
_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)
_OFF_POLICY = "set log_rollout_offpolicy_metrics=True"


def _high(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    """`epsilon_high` is a bound above 1, but the cap itself under CISPO."""
    if not isinstance(setting, int | float):
        return None
    return setting - 1 if others.get("loss_type") == "cispo" else setting


FRAMEWORK = Framework(
    name="ms-swift",
    title="ms-swift",
    dumps="set log_completions=True",
    family=("swift",),
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
        Meaning(key="entropy/mean", metric="entropy/mean", over="tokens of a response, then responses",
                policies="learner", how="set log_entropy=True"),
        Meaning(key="entropy/max", over="responses"),
        Meaning(key="entropy/min", over="responses"),
        Meaning(key="entropy/threshold"),
        Meaning(key="reward", metric="reward/mean", over=_BATCH, when={"kl_in_reward": (False,)}),
        Meaning(key="reward", over=_BATCH, when={"kl_in_reward": (True,)},
                lie="minus beta times the KL: not the task's reward"),
        Meaning(key="reward_std", metric="groups/reward_std", over="groups",
                when={"scale_rewards": ("group", "none", "gdpo")}),
        Meaning(key="reward_std", metric="reward/std", over="the batch",
                when={"scale_rewards": ("batch",)}),
        Meaning(key="frac_reward_zero_std", metric="groups/zero_variance_rate", over="responses",
                when={"scale_rewards": ("group", "none", "gdpo")}),
        Meaning(key="frac_reward_zero_std", when={"scale_rewards": ("batch",)},
                lie="under scale_rewards=batch it is 0 or 1 and says nothing of groups"),
        Meaning(key="rewards/<func>/mean", metric="reward/component/<func>/mean", over=_BATCH),
        Meaning(key="rewards/<func>/std", metric="reward/component/<func>/std", over=_BATCH),
        Meaning(key="completions/mean_length", metric="length/mean", over=_BATCH),
        Meaning(key="completions/max_length", metric="length/max", over=_BATCH),
        Meaning(key="completions/min_length", over=_BATCH),
        Meaning(key="completion_length", metric="length/mean", over=_BATCH, until="3.4"),
        Meaning(key="response_clip_ratio", metric="length/truncated_rate", over=_BATCH,
                until="3.4", lie="responses cut by the length limit, no clip of a ratio"),
        Meaning(key="rewards/<func>", metric="reward/component/<func>/mean", over=_BATCH,
                until="3.4"),
        Meaning(key="completions/clipped_ratio", metric="length/truncated_rate", over=_BATCH,
                lie="responses cut by the length limit, no clip of a ratio"),
        Meaning(key="kl", metric="kl/reference/k3", estimator="k3", over="tokens",
                policies="learner | reference", when={"kl_in_reward": (False,)}),
        Meaning(key="kl", policies="learner | reference", when={"kl_in_reward": (True,)},
                lie="the sum of k1 over a response, no mean of tokens"),
        Meaning(key="clip_ratio/low_mean", metric="clip/low_rate", over="tokens",
                policies="learner / old", structural_zero=_ONE_UPDATE),
        Meaning(key="clip_ratio/high_mean", metric="clip/high_rate", over="tokens",
                policies="learner / old", structural_zero=_ONE_UPDATE),
        Meaning(key="clip_ratio/region_mean", metric="clip/any_rate", over="tokens",
                policies="learner / old", structural_zero=_ONE_UPDATE),
        Meaning(key="clip_ratio/low_min", over="ranks"),
        Meaning(key="clip_ratio/high_max", over="ranks", lie="of ranks, not of responses"),
        Meaning(key="clip_ratio", metric="clip/any_rate", over="tokens", policies="learner / old"),
        Meaning(key="cispo_clip_ratio", metric="clip/high_rate", over="tokens",
                policies="learner / old",
                lie="tokens whose weight is bounded; they keep their gradient"),
        Meaning(key="rollout_correction/kl", metric="mismatch/kl_k1", estimator="k1",
                over="tokens", policies="sampler | old", how=_OFF_POLICY),
        Meaning(key="rollout_correction/k3_kl", metric="mismatch/kl_k3", estimator="k3",
                over="tokens", policies="sampler | old", how=_OFF_POLICY),
        Meaning(key="rollout_correction/chi2_token", metric="mismatch/chi2", over="tokens"),
        Meaning(key="rollout_correction/chi2_seq",
                lie="of the geometric mean of a response's ratios, not of their product"),
        Meaning(key="rollout_correction/is_weight_mean", metric="correction/weight_mean",
                over="tokens", lie="as applied"),
        Meaning(key="rollout_correction/clipped_frac", metric="correction/capped_rate",
                over="tokens"),
        Meaning(key="rollout_correction/ess", lie="of the weights as applied"),
        Meaning(key="rollout_correction/<path>"),
        Meaning(key="loss", metric="optimizer/loss"),
        Meaning(key="grad_norm", metric="optimizer/grad_norm"),
        Meaning(key="learning_rate", metric="optimizer/learning_rate"),
        Meaning(key="train_speed(s/it)", metric="time/step", unit="s"),
        *(Meaning(key=key) for key in (
            "num_turns", "epoch", "memory(GiB)", "remaining_time", "elapsed_time", "percentage",
            "step_time", "fipo/<path>", "sdar/<path>", "teacher_kl", "eval_<path>", "num_tokens",
            "train_speed(iter/s)")),
    ),
    knobs=(
        KnobMeaning(key="loss_type", knob="loss",
                    of={**dict.fromkeys(("grpo", "bnpo", "dr_grpo", "dapo"), "ppo_clip"),
                        "cispo": "cispo", "sapo": "sapo"}, default="grpo"),
        KnobMeaning(key="loss_type", knob="aggregation",
                    of={"grpo": "sequence-mean", "bnpo": "token-mean", "dapo": "token-mean",
                        "dr_grpo": "constant"}),
        KnobMeaning(key="scale_rewards", knob="advantage",
                    of={"group": "group", "batch": "batch_std", "none": "centred",
                        "gdpo": "gdpo"}),
        KnobMeaning(key="epsilon", knob="clip_low"),
        KnobMeaning(key="epsilon_high", knob="clip_high", of=_high),
        KnobMeaning(key="beta", knob="kl_coefficient"),
        KnobMeaning(key="dynamic_sample", knob="dynamic_sampling"),
        KnobMeaning(key="overlong_filter", knob="overlong", of={True: "mask", False: "none"}),
        KnobMeaning(key="num_generations", knob="group_size"),
        KnobMeaning(key="num_iterations", knob="updates_per_batch"),
        KnobMeaning(key="learning_rate", knob="learning_rate"),
        KnobMeaning(key="max_completion_length", knob="max_length"),
        KnobMeaning(key="temperature", knob="temperature"),
    ),
)
