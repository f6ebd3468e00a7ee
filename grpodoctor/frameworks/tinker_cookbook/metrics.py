"""tinker-cookbook's metrics.jsonl, checked in the source of commit 9dfcc3a2 (v0.5.5).

`env/all/*` are means over the episodes or the groups of a batch; `ac_tokens_per_turn` divides by
turns. A group counts as all good if it shares a reward of at least 0.5, and as all bad if it shares
a lower one. `optim/kl_sample_train_*` and `optim/entropy` are means over action tokens, with the
sampler's log-probabilities from the rollout. `teacher_kl` is the mean log-ratio to the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, without_metric
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
        KeyMeaning("optim/entropy", "entropy/sampled", caveat=_ENTROPY_CAVEAT, over="tokens",
            policies="sampler"),
        KeyMeaning("optim/kl_sample_train_v1", "mismatch/kl_k1", estimator="k1", over="tokens",
            policies="sampler | old"),
        KeyMeaning("optim/kl_sample_train_v2", "mismatch/kl_k2", estimator="k2", over="tokens",
            policies="sampler | old"),
        KeyMeaning("env/all/reward/total", "reward/mean", over=_EPISODES, when=_REWARDED),
        *(KeyMeaning(key, when={_DISTILLED: (True,)}, caveat=_NO_REWARD)
          for key in ("env/all/reward/total", "env/all/by_group/frac_mixed",
                      "env/all/by_group/frac_all_good", "env/all/by_group/frac_all_bad")),
        KeyMeaning(("env/all/ac_tokens_per_turn", "env/all/turns_per_episode"), "length/mean",
            formula="product", over=_EPISODES),
        KeyMeaning("env/all/turns_per_episode", "environment/turns_mean", over=_EPISODES),
        KeyMeaning("env/all/by_group/frac_mixed", "groups/effective_rate", over="groups",
            when=_REWARDED),
        KeyMeaning(("env/all/by_group/frac_all_good", "env/all/by_group/frac_all_bad"),
            "groups/zero_variance_rate", when=_REWARDED, formula="sum", over="groups"),
        KeyMeaning("env/all/by_group/frac_all_good", "groups/all_correct_rate", when=_REWARDED,
            over="groups", caveat="groups that share a reward of at least 0.5, correct or not"),
        KeyMeaning("env/all/by_group/frac_all_bad", "groups/all_incorrect_rate", when=_REWARDED,
            over="groups", caveat="groups that share a reward below 0.5, incorrect or not"),
        KeyMeaning("optim/lr", "optimizer/learning_rate"),
        KeyMeaning("skyrl.ai/grad_norm", "optimizer/grad_norm",
            over="updates of a SkyRL server used in place of Tinker's"),
        KeyMeaning("teacher_kl", "kl/teacher", estimator="k1", over="tokens",
            policies="sampler | teacher"),
        *without_metric("skyrl.ai/<path>", "teacher_kl/<path>"),
        KeyMeaning("env/all/correct", "accuracy/train", over=_EPISODES),
        KeyMeaning("test/env/all/correct", "accuracy/heldout", over="test episodes"),
        KeyMeaning("test/env/all/reward/total", "reward/heldout", over="test episodes",
            how_to_log="give a test set, which is evaluated every eval_every steps"),
        # An evaluator puts its name before each key (`val/env/…`), and some loops put `test/` before that.
        KeyMeaning("<path>/env/all/correct", "accuracy/heldout", over="test episodes"),
        KeyMeaning("<path>/env/all/reward/total", "reward/heldout", over="test episodes"),
        KeyMeaning("time/total", "time/step", unit="s"),
        KeyMeaning("kl_policy_base", "kl/reference/k1", estimator="k1", over="tokens",
            policies="learner | reference", how_to_log="set kl_penalty_coef=1e-6, too small to matter"),
        KeyMeaning("kl_pre_post_v1", "kl/old_policy/k1", estimator="k1", over="tokens",
            policies="old | learner", how_to_log="set compute_post_kl=True"),
        KeyMeaning("kl_pre_post_v2", "kl/old_policy/k2", estimator="k2", over="tokens",
            policies="old | learner", how_to_log="set compute_post_kl=True"),
        KeyMeaning(("training_client/step", "sampling_client/step_mean"), "staleness/mean",
            formula="difference", unit="training steps"),
        KeyMeaning("env/all/<metric>", named_by_user=True),
        *without_metric("env/<path>", "test/<path>", "time/<path>", "progress/<path>",
            "sampling_client/<path>", "training_client/<path>", "rollout_errors/<path>"),
    ),
    knobs=KNOBS,
)
