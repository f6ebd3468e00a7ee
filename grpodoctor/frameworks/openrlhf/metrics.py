"""OpenRLHF, checked in the source of commit 3c3be623 (v0.11).

The keys below `rollout/` are means over the whole rollout batch. The keys without it are means over
micro-batches, weighted by tokens or samples, and over the updates of a step. `entropy_loss`,
`ppo_clip_ratio`, `ppo_kl` and `vllm_kl` are means over action tokens; `kl` is a mean over tokens of
a response, then over responses, unless it is in the loss. `dynamic_filtering_pass_rate` divides
kept samples by prompts. A row is one rollout batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning, by_estimator, without_metric
from grpodoctor.frameworks.openrlhf.knobs import KNOBS
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_BATCH = "responses of the rollout batch"


_SCORE = "the score is logged alongside the reward"
_ROLLOUT = "the rollout batch is logged before it is divided"
_OLDER = {_ROLLOUT: (False,)}
_ONLY_ROLLOUT = {_ROLLOUT: ("alone",)}


def _infer_settings(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Infer what the version logs: the reward before length penalties, the whole rollout batch.

    With dynamic batches, the keys without `rollout/` are means over micro-batches of unequal size.
    """
    keys = {key for row in rows for key in row}
    if "rollout/reward_mean" in keys and keys.isdisjoint({"reward", "score"}):
        return {_SCORE: False, _ROLLOUT: "alone"}
    return {_SCORE: "score" in keys, _ROLLOUT: "rollout/truncated_rate" in keys}


FRAMEWORK = Framework(
    name="openrlhf",
    title="OpenRLHF",
    row_keys=RowKeys(step=("global_step", "step", "train/global_step", "_step")),
    prefixes=("train/", "eval/"),
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
        KeyMeaning("entropy_loss", "entropy/mean", over="tokens", policies="learner",
            caveat="positive entropy, at temperature 1 for any sampling temperature",
            how_to_log="set --actor.entropy_coef 0, which logs it without a bonus"),
        KeyMeaning("ppo_clip_ratio", "clip/any_rate", over="tokens",
            mask="only where the clip removes the gradient", policies="learner / old",
            structural_zero=RATIO_IS_ONE),
        KeyMeaning("ppo_kl", "kl/old_policy/k1", estimator="k1", over="tokens",
            policies="old | learner", structural_zero=RATIO_IS_ONE),
        KeyMeaning("vllm_kl", "mismatch/kl_k1", estimator="k1", over="tokens",
            policies="sampler | old", how_to_log="set --algo.advantage.is_correction_enable"),
        *by_estimator("kl", "kl/reference/", "algo.kl.estimator",
            {kind: (kind,) for kind in ("k1", "k2", "k3")}, policies="learner | reference",
            over="tokens of a response, then responses; tokens with --algo.kl.use_loss"),
        KeyMeaning("logprobs_diff", estimator="k1", over="tokens", policies="learner - reference",
            caveat="the difference to the reference, not to the sampler; 0 without a reference"),
        KeyMeaning("policy_loss", "optimizer/loss"),
        KeyMeaning("actor_lr", "optimizer/learning_rate"),
        KeyMeaning("actor_grad_norm", "optimizer/grad_norm", over="the last update"),
        KeyMeaning("score", "reward/mean", over=_BATCH),
        KeyMeaning("reward", over=_BATCH, when={_SCORE: (True,)},
            caveat="measured after length penalties"),
        KeyMeaning("reward", "reward/mean", over=_BATCH, when={_SCORE: (False,)},
            caveat="measured after length penalties, if there are any"),
        *without_metric("return"),
        KeyMeaning("group_reward_std", "groups/reward_std", over="groups"),
        KeyMeaning("response_length", "length/mean", over=_BATCH, when=_OLDER,
            caveat="includes tokens of tools"),
        KeyMeaning("total_length", caveat="the length of prompt and response together"),
        KeyMeaning("truncated", "length/truncated_rate", over=_BATCH, when=_OLDER,
            caveat="always 0 for multi-turn agents"),
        KeyMeaning("response_clip_ratio", over=_BATCH,
            caveat="the share of responses that fill the context, not a clip fraction"),
        KeyMeaning("rollout/reward_std", "reward/std", over="the batch"),
        KeyMeaning("rollout/response_length_mean", "length/mean", over=_BATCH,
            caveat="includes tokens of tools"),
        KeyMeaning("rollout/truncated_rate", "length/truncated_rate", over=_BATCH,
            caveat="always 0 for multi-turn agents"),
        KeyMeaning("rollout/reward_mean", "reward/mean", over=_BATCH, when=_ONLY_ROLLOUT,
            caveat="measured after length penalties"),
        *without_metric("rollout/num_samples", "rollout/reward_mean"),
        KeyMeaning("dynamic_filtering_pass_rate", unit="percent",
            caveat="responses kept per prompt used, so it can exceed 100"),
        KeyMeaning("timing/step_total", "time/step", unit="s"),
        KeyMeaning("timing/generation", "time/rollout", unit="s"),
        KeyMeaning("timing/ppo_train", "time/learn", unit="s"),
        *without_metric("timing/<path>"),
        KeyMeaning("eval_<set>_pass1", "accuracy/heldout", over="evaluation responses"),
        KeyMeaning("eval_<set>_pass<n>", over="prompts", caveat="the best of n responses"),
        *without_metric("eval_<set>_response_length_mean", "eval_<set>_truncated_rate",
            "eval_<path>"),
        KeyMeaning("critic_loss", "critic/loss", over="tokens of the updates",
            caveat="half the mean squared error"),
        KeyMeaning(("critic_loss", "rollout/reward_std"), "critic/explained_variance",
            formula="explained", over="tokens of the updates",
            caveat="from the critic's loss and the spread of the rewards, as returns are rewards"),
        KeyMeaning("values", "critic/value_mean", over="tokens of the updates"),
        *without_metric("critic_<path>"),
    ),
    defaults={"algo.kl.estimator": "k1", _SCORE: True, _ROLLOUT: True},
    infer_settings=_infer_settings,
    knobs=KNOBS,
)
