"""tinker-cookbook's metrics.jsonl, checked against v0.5.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning
from grpodoctor.frameworks.tinker_cookbook.knobs import KNOBS
from grpodoctor.vocabulary.knobs import Setting

_EPISODES = "episodes of the batch"
_DISTILLED = "a teacher's log-probabilities are the reward"
_REWARDED = {_DISTILLED: (False,)}
_NO_REWARD = "always 0: in on-policy distillation the environment gives no reward"
_ENTROPY_CAVEAT = "the negative mean log-probability of the sampled tokens, not the entropy"


def _infer_settings(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Infer whether a teacher replaces the reward, which is then always zero."""
    teacher = any("teacher_kl" in row for row in rows)
    rewarded = any(row.get("env/all/reward/total") for row in rows)
    return {_DISTILLED: teacher and not rewarded}


FRAMEWORK = Framework(
    name="tinker-cookbook",
    title="tinker-cookbook",
    aliases=("tinker",),
    first_step=0,
    infer_settings=_infer_settings,
    defaults={_DISTILLED: False},
    signature=(
        "env/<path>/by_group/frac_mixed",
        "optim/kl_sample_train_v1",
        "sampling_client/step_mean",
        "progress/done_frac",
    ),
    meanings=(
        KeyMeaning(
            key="optim/entropy",
            metric="entropy/sampled",
            caveat=_ENTROPY_CAVEAT,
            over="tokens",
            policies="sampler",
        ),
        KeyMeaning(
            key="optim/kl_sample_train_v1",
            metric="mismatch/kl_k1",
            estimator="k1",
            over="tokens",
            policies="sampler | old",
        ),
        KeyMeaning(
            key="optim/kl_sample_train_v2",
            estimator="k2",
            caveat="half the mean squared log-ratio; no metric corresponds to it",
        ),
        KeyMeaning(
            key="env/all/reward/total", metric="reward/mean", over=_EPISODES, when=_REWARDED
        ),
        *(
            KeyMeaning(key=key, when={_DISTILLED: (True,)}, caveat=_NO_REWARD)
            for key in (
                "env/all/reward/total",
                "env/all/by_group/frac_mixed",
                "env/all/by_group/frac_all_good",
                "env/all/by_group/frac_all_bad",
            )
        ),
        KeyMeaning(
            key=("env/all/ac_tokens_per_turn", "env/all/turns_per_episode"),
            metric="length/mean",
            formula="product",
            over=_EPISODES,
        ),
        KeyMeaning(
            key="env/all/by_group/frac_mixed",
            metric="groups/effective_rate",
            over="groups",
            when=_REWARDED,
        ),
        KeyMeaning(
            key=("env/all/by_group/frac_all_good", "env/all/by_group/frac_all_bad"),
            metric="groups/zero_variance_rate",
            when=_REWARDED,
            formula="sum",
            over="groups",
        ),
        KeyMeaning(
            key="env/all/by_group/frac_all_good",
            metric="groups/all_correct_rate",
            when=_REWARDED,
            over="groups",
            caveat="groups that share a reward of at least 0.5, correct or not",
        ),
        KeyMeaning(
            key="env/all/by_group/frac_all_bad",
            metric="groups/all_incorrect_rate",
            when=_REWARDED,
            over="groups",
            caveat="groups that share a reward below 0.5, incorrect or not",
        ),
        KeyMeaning(key="optim/lr", metric="optimizer/learning_rate"),
        KeyMeaning(
            key="skyrl.ai/grad_norm",
            metric="optimizer/grad_norm",
            over="updates of a SkyRL server used in place of Tinker's",
        ),
        KeyMeaning(key="skyrl.ai/<path>"),
        KeyMeaning(key="teacher_kl"),
        KeyMeaning(key="teacher_kl/<path>"),
        KeyMeaning(
            key="test/env/all/reward/total",
            metric="reward/heldout",
            over="test episodes",
            how_to_log="give a test set, which is evaluated every eval_every steps",
        ),
        KeyMeaning(key="time/total", metric="time/step", unit="s"),
        KeyMeaning(
            key="kl_policy_base",
            metric="kl/reference/k1",
            estimator="k1",
            over="tokens",
            policies="learner | reference",
            how_to_log="set kl_penalty_coef above 0",
        ),
        KeyMeaning(
            key="kl_pre_post_v1",
            metric="kl/old_policy/k1",
            estimator="k1",
            over="tokens",
            policies="old | learner",
            how_to_log="set compute_post_kl=True",
        ),
        KeyMeaning(
            key="kl_pre_post_v2",
            metric="kl/old_policy/k2",
            estimator="k2",
            over="tokens",
            policies="old | learner",
            how_to_log="set compute_post_kl=True",
        ),
        KeyMeaning(
            key=("training_client/step", "sampling_client/step_mean"),
            metric="staleness/mean",
            formula="difference",
            unit="training steps",
        ),
        *(
            KeyMeaning(key=f"{family}/<path>")
            for family in (
                "env",
                "test",
                "time",
                "progress",
                "sampling_client",
                "training_client",
                "rollout_errors",
            )
        ),
    ),
    knobs=KNOBS,
)
