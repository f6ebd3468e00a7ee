"""OpenRLHF, checked against v0.11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)
_BATCH = "responses of the rollout batch"
_ESTIMATORS: Mapping[Setting, Setting] = {
    "group_norm": "group", "dr_grpo": "centred", "rloo": "leave_one_out", "gae": "gae",
}


_SCORE = "the score is logged beside the reward"


def _hints(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Whether there is a reward before length penalties: older versions log none."""
    return {_SCORE: any("score" in row for row in rows)}


def _correction(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    if others.get("algo.advantage.is_correction_enable") is not True:
        return "none"
    return {"tis": "tis_token", "icepop": "icepop", "seq-mask-tis": "geo_mask"}.get(str(setting))


FRAMEWORK = Framework(
    name="openrlhf",
    title="OpenRLHF",
    row_keys=RowKeys(step=("global_step", "step", "train/global_step", "_step")),
    prefixes=("train/",),
    signature=(
        "ppo_clip_ratio",
        "group_reward_std",
        "logprobs_diff",
        "response_clip_ratio",
        "rollout/truncated_rate",
        "dynamic_filtering_pass_rate",
        "actor_grad_norm",
    ),
    version_key="openrlhf_version",
    meanings=(
        Meaning(key="entropy_loss", metric="entropy/mean", over="tokens", policies="learner",
                lie="positive entropy, at temperature 1 whatever the sampling temperature",
                how="set --actor.entropy_coef 0, which logs it and adds no bonus"),
        Meaning(key="ppo_clip_ratio", metric="clip/any_rate", over="tokens",
                mask="only where the clip removes the gradient", policies="learner / old",
                structural_zero=_ONE_UPDATE),
        Meaning(key="ppo_kl", metric="kl/old_policy/k1", estimator="k1", over="tokens",
                policies="old | learner", structural_zero=_ONE_UPDATE),
        Meaning(key="vllm_kl", metric="mismatch/kl_k1", estimator="k1", over="tokens",
                policies="sampler | old", how="set --algo.advantage.is_correction_enable"),
        Meaning(key="kl", metric="kl/reference/k1", estimator="k1, clamped at 10",
                over="tokens of a response, then responses; tokens under --algo.kl.use_loss",
                policies="learner | reference", when={"algo.kl.estimator": ("k1",)}),
        Meaning(key="kl", metric="kl/reference/k2", estimator="k2",
                over="tokens of a response, then responses; tokens under --algo.kl.use_loss",
                policies="learner | reference", when={"algo.kl.estimator": ("k2",)}),
        Meaning(key="kl", metric="kl/reference/k3", estimator="k3",
                over="tokens of a response, then responses; tokens under --algo.kl.use_loss",
                policies="learner | reference", when={"algo.kl.estimator": ("k3",)}),
        Meaning(key="logprobs_diff", estimator="k1", over="tokens",
                policies="learner - reference",
                lie="against the reference, not against the sampler; 0 where there is none"),
        Meaning(key="policy_loss", metric="optimizer/loss"),
        Meaning(key="actor_lr", metric="optimizer/learning_rate"),
        Meaning(key="actor_grad_norm", metric="optimizer/grad_norm", over="the last update"),
        Meaning(key="score", metric="reward/mean", over=_BATCH),
        Meaning(key="reward", over=_BATCH, when={_SCORE: (True,)}, lie="after length penalties"),
        Meaning(key="reward", metric="reward/mean", over=_BATCH, when={_SCORE: (False,)},
                lie="after length penalties, where there are any"),
        Meaning(key="return"),
        Meaning(key="group_reward_std", metric="groups/reward_std", over="groups"),
        Meaning(key="response_length", metric="length/mean", over=_BATCH,
                lie="tokens of tools count"),
        Meaning(key="total_length", lie="prompt and response together"),
        Meaning(key="truncated", metric="length/truncated_rate", over=_BATCH,
                lie="always 0 for agents of several turns"),
        Meaning(key="response_clip_ratio", over=_BATCH,
                lie="responses that fill the context together with their prompt, no clip of a "
                    "ratio"),
        Meaning(key="rollout/reward_mean", over=_BATCH),
        Meaning(key="rollout/reward_std", metric="reward/std", over="the batch"),
        Meaning(key="rollout/response_length_mean", over=_BATCH),
        Meaning(key="rollout/truncated_rate", over=_BATCH),
        Meaning(key="rollout/num_samples"),
        Meaning(key="dynamic_filtering_pass_rate", unit="percent",
                lie="responses kept over prompts used: it can exceed 100"),
        Meaning(key="timing/step_total", metric="time/step", unit="s"),
        Meaning(key="timing/generation", metric="time/rollout", unit="s"),
        Meaning(key="timing/ppo_train", metric="time/learn", unit="s"),
        Meaning(key="timing/<path>"),
        Meaning(key="eval/eval_<dataset>_pass1", metric="accuracy/heldout"),
        Meaning(key="critic_<path>"),
    ),
    defaults={"algo.kl.estimator": "k1", _SCORE: True},
    hints=_hints,
    knobs=(
        KnobMeaning(key="actor.policy_loss_type", knob="loss",
                    of={"ppo": "ppo_clip", "gspo": "gspo"}, default="ppo"),
        KnobMeaning(key="actor.eps_clip", knob="clip_low"),
        KnobMeaning(key="actor.eps_clip", knob="clip_high"),
        KnobMeaning(key="algo.advantage.estimator", knob="advantage", of=_ESTIMATORS),
        KnobMeaning(key="algo.advantage.is_correction_type", knob="correction", of=_correction),
        KnobMeaning(key="algo.dynamic_filtering_enable", knob="dynamic_sampling"),
        KnobMeaning(key="algo.kl.init_coef", knob="kl_coefficient"),
        KnobMeaning(key="actor.entropy_coef", knob="entropy_coefficient"),
        KnobMeaning(key="rollout.n_samples_per_prompt", knob="group_size"),
        KnobMeaning(key="rollout.batch_size", knob="prompts_per_batch"),
        KnobMeaning(key="rollout.max_new_tokens", knob="max_length"),
        KnobMeaning(key="rollout.temperature", knob="temperature"),
        KnobMeaning(key="actor.adam.lr", knob="learning_rate"),
    ),
)
