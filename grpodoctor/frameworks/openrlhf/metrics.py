"""OpenRLHF, checked against v0.11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning
from grpodoctor.frameworks.openrlhf.knobs import KNOBS
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_BATCH = "responses of the rollout batch"


_SCORE = "the score is logged alongside the reward"


def _infer_settings(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Infer whether the log has the reward before length penalties; older versions do not."""
    return {_SCORE: any("score" in row for row in rows)}


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
        KeyMeaning(key="entropy_loss", metric="entropy/mean", over="tokens", policies="learner",
                caveat="positive entropy, at temperature 1 for any sampling temperature",
                how_to_log="set --actor.entropy_coef 0, which logs it without a bonus"),
        KeyMeaning(key="ppo_clip_ratio", metric="clip/any_rate", over="tokens",
                mask="only where the clip removes the gradient", policies="learner / old",
                structural_zero=RATIO_IS_ONE),
        KeyMeaning(key="ppo_kl", metric="kl/old_policy/k1", estimator="k1", over="tokens",
                policies="old | learner", structural_zero=RATIO_IS_ONE),
        KeyMeaning(key="vllm_kl", metric="mismatch/kl_k1", estimator="k1", over="tokens",
                policies="sampler | old", how_to_log="set --algo.advantage.is_correction_enable"),
        KeyMeaning(key="kl", metric="kl/reference/k1", estimator="k1, clamped at 10",
                over="tokens of a response, then responses; tokens with --algo.kl.use_loss",
                policies="learner | reference", when={"algo.kl.estimator": ("k1",)}),
        KeyMeaning(key="kl", metric="kl/reference/k2", estimator="k2",
                over="tokens of a response, then responses; tokens with --algo.kl.use_loss",
                policies="learner | reference", when={"algo.kl.estimator": ("k2",)}),
        KeyMeaning(key="kl", metric="kl/reference/k3", estimator="k3",
                over="tokens of a response, then responses; tokens with --algo.kl.use_loss",
                policies="learner | reference", when={"algo.kl.estimator": ("k3",)}),
        KeyMeaning(key="logprobs_diff", estimator="k1", over="tokens",
                policies="learner - reference",
                caveat="the difference to the reference, not to the sampler; 0 without a reference"),
        KeyMeaning(key="policy_loss", metric="optimizer/loss"),
        KeyMeaning(key="actor_lr", metric="optimizer/learning_rate"),
        KeyMeaning(key="actor_grad_norm", metric="optimizer/grad_norm", over="the last update"),
        KeyMeaning(key="score", metric="reward/mean", over=_BATCH),
        KeyMeaning(key="reward", over=_BATCH, when={_SCORE: (True,)}, caveat="measured after length penalties"),
        KeyMeaning(key="reward", metric="reward/mean", over=_BATCH, when={_SCORE: (False,)},
                caveat="measured after length penalties, if there are any"),
        KeyMeaning(key="return"),
        KeyMeaning(key="group_reward_std", metric="groups/reward_std", over="groups"),
        KeyMeaning(key="response_length", metric="length/mean", over=_BATCH,
                caveat="includes tokens of tools"),
        KeyMeaning(key="total_length", caveat="the length of prompt and response together"),
        KeyMeaning(key="truncated", metric="length/truncated_rate", over=_BATCH,
                caveat="always 0 for multi-turn agents"),
        KeyMeaning(key="response_clip_ratio", over=_BATCH,
                caveat="the share of responses that fill the context, not a clip fraction"),
        KeyMeaning(key="rollout/reward_mean", over=_BATCH),
        KeyMeaning(key="rollout/reward_std", metric="reward/std", over="the batch"),
        KeyMeaning(key="rollout/response_length_mean", over=_BATCH),
        KeyMeaning(key="rollout/truncated_rate", over=_BATCH),
        KeyMeaning(key="rollout/num_samples"),
        KeyMeaning(key="dynamic_filtering_pass_rate", unit="percent",
                caveat="responses kept per prompt used, so it can exceed 100"),
        KeyMeaning(key="timing/step_total", metric="time/step", unit="s"),
        KeyMeaning(key="timing/generation", metric="time/rollout", unit="s"),
        KeyMeaning(key="timing/ppo_train", metric="time/learn", unit="s"),
        KeyMeaning(key="timing/<path>"),
        KeyMeaning(key="eval/eval_<dataset>_pass1", metric="accuracy/heldout"),
        KeyMeaning(key="critic_<path>"),
    ),
    defaults={"algo.kl.estimator": "k1", _SCORE: True},
    infer_settings=_infer_settings,
    knobs=KNOBS,
)
