"""TRL's GRPOTrainer, and what logs through it: Unsloth, Axolotl. Checked against 0.16 to 1.16."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_RANKS = "all ranks"
_BATCH = "responses of the generation batch, all ranks"
_SIGN_AWARE = "only where the clip removes the gradient"
_NOT_SAPO = {"loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "vespo", "luspo")}
_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)
_CLIPPED = "ratios of tokens; of sequences under importance_sampling_level=sequence"
_VLLM = "set use_vllm=True and vllm_importance_sampling_correction=True"


def _clip(key: str, metric: str) -> Meaning:
    return Meaning(key=key, metric=metric, over=_CLIPPED, mask=_SIGN_AWARE,
                   policies="learner / old", since="0.17", structural_zero=_ONE_UPDATE)


_ENTROPY = (
    Meaning(key="entropy", metric="entropy/mean", over="tokens of a micro-batch, all ranks",
            mask="without tool tokens, and without truncated responses under "
                 "mask_truncated_completions", policies="learner", since="0.20",
            how="leave use_liger_kernel off"),
)
_LENGTH = (
    Meaning(key="completions/mean_length", metric="length/mean", over=_BATCH, since="0.17"),
    Meaning(key="completion_length", metric="length/mean", over=_BATCH),
    Meaning(key="completions/max_length", metric="length/max", over=_BATCH, since="0.17"),
    Meaning(key="completions/min_length", over=_BATCH, since="0.17"),
    Meaning(key="completions/clipped_ratio", metric="length/truncated_rate", over=_BATCH,
            since="0.17",
            lie="not a clip of the ratio: responses whose last token is no end of sequence"),
    Meaning(key="completions/mean_terminated_length", metric="length/terminated_mean", over=_BATCH,
            since="0.17", lie="0 where no response ended by itself"),
    Meaning(key="completions/min_terminated_length", over=_BATCH, since="0.17"),
    Meaning(key="completions/max_terminated_length", over=_BATCH, since="0.17"),
)
_REWARD = (
    Meaning(key="reward", metric="reward/mean", over=_BATCH),
    Meaning(key="reward_std", metric="reward/std", over=_BATCH, since="0.27",
            estimator="standard deviation over the batch"),
    Meaning(key="reward_std", metric="groups/reward_std", over="groups", until="0.27",
            estimator="mean of the groups' standard deviations, unbiased"),
    Meaning(key="rewards/<func>/mean", metric="reward/component/<func>/mean", over=_BATCH,
            mask="responses for which the function gave no NaN"),
    Meaning(key="rewards/<func>/std", metric="reward/component/<func>/std", over=_BATCH,
            mask="responses for which the function gave no NaN"),
    Meaning(key="rewards/<func>", metric="reward/component/<func>/mean", over=_BATCH,
            until="0.17"),
    Meaning(key="frac_reward_zero_std", metric="groups/zero_variance_rate", over="responses",
            since="0.18", when={"scale_rewards": ("group", "none", True, False)}),
    Meaning(key="frac_reward_zero_std", over="responses", since="0.18",
            when={"scale_rewards": ("batch",)},
            lie="under scale_rewards=batch it is taken from the batch's deviation, 0 or 1, and says "
                "nothing of groups"),
)
_CLIP = (
    _clip("clip_ratio/low_mean", "clip/low_rate"),
    _clip("clip_ratio/high_mean", "clip/high_rate"),
    _clip("clip_ratio/region_mean", "clip/any_rate"),
    Meaning(key="clip_ratio/low_min", over="minimum of ranks, of sequences since 1.9",
            since="0.17"),
    Meaning(key="clip_ratio/high_max", over="maximum of ranks, of sequences since 1.9",
            since="0.17"),
    Meaning(key="clip_ratio", metric="clip/any_rate", over="tokens", policies="learner / old",
            structural_zero=_ONE_UPDATE),
    Meaning(key="cispo_clip_ratio", metric="clip/high_rate", over="tokens", mask="A > 0 only",
            policies="learner / old", structural_zero=_ONE_UPDATE,
            lie="tokens whose weight is bounded; they keep their gradient"),
    Meaning(key="vespo/phi_seq_mean", metric="clip/gate_mean", over="sequences"),
)
_DRIFT = (
    Meaning(key="kl", metric="kl/reference/k3", over="tokens", estimator="k3",
            policies="learner | reference", how="set beta above 0"),
)
_MISMATCH = (
    Meaning(key="sampling/sampling_logp_difference/mean", metric="mismatch/logprob_diff_mean",
            over="tokens of a rank, then a mean of ranks", policies="old - sampler", since="0.23",
            how=_VLLM),
    Meaning(key="sampling/sampling_logp_difference/max",
            metric="mismatch/logprob_diff_max/worst_sequence", over="tokens, all ranks",
            policies="old - sampler", since="0.23", how=_VLLM),
    Meaning(key="sampling/importance_sampling_ratio/mean", metric="correction/weight_mean",
            policies="old / sampler", since="0.23", how=_VLLM,
            over="tokens; sequences in the sequence_ modes",
            lie="after the cap or the mask, not the raw ratio"),
    Meaning(key="sampling/importance_sampling_ratio/max", policies="old / sampler", since="0.23",
            lie="after the cap: never above it, however far the raw ratio went"),
    Meaning(key="sampling/importance_sampling_ratio/min", policies="old / sampler", since="0.23",
            lie="after the mask: what was left out counts as 0"),
)
_OPTIMIZER = (
    Meaning(key="loss", metric="optimizer/loss", over="micro-batches since the last log",
            lie="its value is near 0 whatever is learnt: only its gradient means something"),
    Meaning(key="grad_norm", metric="optimizer/grad_norm", over="the last step before the log"),
    Meaning(key="learning_rate", metric="optimizer/learning_rate"),
    Meaning(key="entropy_coef"),
    Meaning(key="step_time", metric="time/step", unit="s", since="0.26", always=True),
    Meaning(key="policy_loss"),
    Meaning(key="aux_loss"),
    Meaning(key="num_tokens"),
    Meaning(key="epoch"),
    Meaning(key="tools/call_frequency"),
    Meaning(key="tools/failure_frequency"),
    Meaning(key="total_flos"),
    Meaning(key="train_loss"),
    Meaning(key="train_runtime"),
    Meaning(key="train_samples_per_second"),
    Meaning(key="train_steps_per_second"),
    Meaning(key="profiling/Time taken: GRPOTrainer.<path>"),
    Meaning(key="profiling/<path>"),
)
_EVALUATION = (
    Meaning(key="eval_reward", metric="reward/heldout", over="held-out responses",
            how="give an eval_dataset and set eval_strategy=steps"),
    Meaning(key="eval/reward", metric="reward/heldout", over="held-out responses"),
    Meaning(key="eval_<path>"),
    Meaning(key="eval/<path>"),
)
_LOSSES: Mapping[Setting, Setting] = {
    **dict.fromkeys(("grpo", "bnpo", "dr_grpo", "dapo"), "ppo_clip"),
    **{kind: kind for kind in ("cispo", "sapo", "vespo")},
}
_AGGREGATIONS: Mapping[Setting, Setting] = {
    "grpo": "sequence-mean", "sapo": "sequence-mean", "bnpo": "token-mean", "dapo": "token-mean",
    "cispo": "token-mean", "vespo": "token-mean", "dr_grpo": "constant",
}
_ADVANTAGES: Mapping[Setting, Setting] = {
    "group": "group", True: "group", "batch": "batch_std", "none": "centred", False: "centred",
}
_CORRECTIONS: Mapping[Setting, Setting] = {
    "token_truncate": "tis_token", "sequence_truncate": "tis_sequence",
    "token_mask": "mis_token", "sequence_mask": "mis_sequence",
}


def _high(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    """`epsilon_high` is a bound above 1, but the cap itself under CISPO."""
    if not isinstance(setting, int | float):
        return None
    return setting - 1 if others.get("loss_type") == "cispo" else setting


def _updates(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    """Passes over a batch times the optimizer steps of each."""
    steps, accumulation = others.get("steps_per_generation"), others.get(
        "gradient_accumulation_steps")
    if not isinstance(setting, int):
        return None
    if steps is None:
        return setting
    if not isinstance(steps, int) or not isinstance(accumulation, int) or accumulation < 1:
        return None
    return setting * max(1, steps // accumulation)


_KNOBS = (
    KnobMeaning(key="loss_type", knob="loss", of=_LOSSES),
    KnobMeaning(key="loss_type", knob="aggregation", of=_AGGREGATIONS),
    KnobMeaning(key="scale_rewards", knob="advantage", of=_ADVANTAGES),
    KnobMeaning(key="epsilon", knob="clip_low"),
    KnobMeaning(key="epsilon_high", knob="clip_high", of=_high),
    KnobMeaning(key="beta", knob="kl_coefficient"),
    KnobMeaning(key="entropy_coef", knob="entropy_coefficient"),
    KnobMeaning(key="num_generations", knob="group_size"),
    KnobMeaning(key="num_iterations", knob="updates_per_batch", of=_updates),
    KnobMeaning(key="learning_rate", knob="learning_rate"),
    KnobMeaning(key="max_completion_length", knob="max_length"),
    KnobMeaning(key="temperature", knob="temperature"),
    KnobMeaning(key="mask_truncated_completions", knob="overlong", of={True: "mask", False: "none"}),
    KnobMeaning(key="vllm_importance_sampling_mode", knob="correction", of=_CORRECTIONS),
    KnobMeaning(key="vllm_importance_sampling_clip_max", knob="correction_cap"),
    KnobMeaning(key="vllm_importance_sampling_cap", knob="correction_cap"),
)

FRAMEWORK = Framework(
    name="trl",
    title="TRL GRPOTrainer",
    dumps="set log_completions=True",
    family=("unsloth", "axolotl"),
    prefixes=("train/",),
    row_keys=RowKeys(step=("step", "global_step", "train/global_step", "_step")),
    signature=(
        "completions/mean_terminated_length",
        "sampling/sampling_logp_difference/mean",
        "clip_ratio/region_mean",
        "profiling/Time taken: GRPOTrainer.<path>",
        ("reward", "reward_std", "completions/mean_length"),
        ("reward", "reward_std", "completion_length"),
        ("reward", "reward_std", "frac_reward_zero_std"),
        ("reward", "reward_std", "kl", "learning_rate"),
    ),
    version_key="trl_version",
    defaults={"scale_rewards": "group"},
    meanings=(*_ENTROPY, *_LENGTH, *_REWARD, *_CLIP, *_DRIFT, *_MISMATCH, *_OPTIMIZER,
              *_EVALUATION),
    knobs=_KNOBS,
)
