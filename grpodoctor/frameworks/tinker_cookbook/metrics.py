"""tinker-cookbook's metrics.jsonl, checked against v0.5.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.vocabulary.knobs import Setting

_EPISODES = "episodes of the batch"
_DISTILLED = "a teacher's log-probabilities are the reward"
_REWARDED = {_DISTILLED: (False,)}
_NO_REWARD = "in on-policy distillation the environment gives no reward: always 0"
_ENTROPY_LIE = "minus the mean log-probability of the sampled tokens, not the entropy"


def _hints(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Whether a teacher stands in for the reward, which is then zero throughout."""
    teacher = any("teacher_kl" in row for row in rows)
    rewarded = any(row.get("env/all/reward/total") for row in rows)
    return {_DISTILLED: teacher and not rewarded}


FRAMEWORK = Framework(
    name="tinker-cookbook",
    title="tinker-cookbook",
    family=("tinker",),
    first_step=0,
    hints=_hints,
    defaults={_DISTILLED: False},
    signature=(
        "env/<path>/by_group/frac_mixed",
        "optim/kl_sample_train_v1",
        "sampling_client/step_mean",
        "progress/done_frac",
    ),
    meanings=(
        Meaning(
            key="optim/entropy",
            metric="entropy/sampled",
            lie=_ENTROPY_LIE,
            over="tokens",
            policies="sampler",
        ),
        Meaning(
            key="optim/kl_sample_train_v1",
            metric="mismatch/kl_k1",
            estimator="k1",
            over="tokens",
            policies="sampler | old",
        ),
        Meaning(
            key="optim/kl_sample_train_v2",
            estimator="k2",
            lie="half the mean squared log-ratio, which no canonical metric is",
        ),
        Meaning(key="env/all/reward/total", metric="reward/mean", over=_EPISODES, when=_REWARDED),
        *(
            Meaning(key=key, when={_DISTILLED: (True,)}, lie=_NO_REWARD)
            for key in (
                "env/all/reward/total",
                "env/all/by_group/frac_mixed",
                "env/all/by_group/frac_all_good",
                "env/all/by_group/frac_all_bad",
            )
        ),
        Meaning(
            key=("env/all/ac_tokens_per_turn", "env/all/turns_per_episode"),
            metric="length/mean",
            formula="product",
            over=_EPISODES,
        ),
        Meaning(
            key="env/all/by_group/frac_mixed",
            metric="groups/effective_rate",
            over="groups",
            when=_REWARDED,
        ),
        Meaning(
            key=("env/all/by_group/frac_all_good", "env/all/by_group/frac_all_bad"),
            metric="groups/zero_variance_rate",
            when=_REWARDED,
            formula="sum",
            over="groups",
        ),
        Meaning(
            key="env/all/by_group/frac_all_good",
            metric="groups/all_correct_rate",
            when=_REWARDED,
            over="groups",
            lie="groups of one reward of at least 0.5, correct or not",
        ),
        Meaning(
            key="env/all/by_group/frac_all_bad",
            metric="groups/all_incorrect_rate",
            when=_REWARDED,
            over="groups",
            lie="groups of one reward below 0.5, incorrect or not",
        ),
        Meaning(key="optim/lr", metric="optimizer/learning_rate"),
        Meaning(
            key="skyrl.ai/grad_norm",
            metric="optimizer/grad_norm",
            over="the update, by a server of SkyRL in place of Tinker's",
        ),
        Meaning(key="skyrl.ai/<path>"),
        Meaning(key="teacher_kl"),
        Meaning(key="teacher_kl/<path>"),
        Meaning(
            key="test/env/all/reward/total",
            metric="reward/heldout",
            over="test episodes",
            how="give a test set, evaluated at every eval_every steps",
        ),
        Meaning(key="time/total", metric="time/step", unit="s"),
        Meaning(
            key="kl_policy_base",
            metric="kl/reference/k1",
            estimator="k1",
            over="tokens",
            policies="learner | reference",
            how="set kl_penalty_coef above 0",
        ),
        Meaning(
            key="kl_pre_post_v1",
            metric="kl/old_policy/k1",
            estimator="k1",
            over="tokens",
            policies="old | learner",
            how="set compute_post_kl=True",
        ),
        Meaning(
            key="kl_pre_post_v2",
            metric="kl/old_policy/k2",
            estimator="k2",
            over="tokens",
            policies="old | learner",
            how="set compute_post_kl=True",
        ),
        Meaning(
            key=("training_client/step", "sampling_client/step_mean"),
            metric="staleness/mean",
            formula="difference",
            unit="training steps",
        ),
        *(
            Meaning(key=f"{family}/<path>")
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
    knobs=(
        KnobMeaning(key="learning_rate", knob="learning_rate"),
        KnobMeaning(key="max_tokens", knob="max_length"),
        KnobMeaning(key="temperature", knob="temperature", default=1.0),
        KnobMeaning(key="group_size", knob="group_size"),
        KnobMeaning(key="groups_per_batch", knob="prompts_per_batch"),
        KnobMeaning(key="num_substeps", knob="updates_per_batch", default=1),
        KnobMeaning(key="kl_penalty_coef", knob="kl_coefficient", default=0.0),
    ),
)
