"""verl's trainers V0 and V1 and recipes that log through them.

Checked in the source of commit 1dda039b (after v0.9), older keys back to v0.3. Scores exclude aborted
responses, which have no token; lengths include them. Advantages and returns are over response
tokens. `clip_ratio` compares a length with the width of the padded tensor: with V0 that is the limit,
with V1 the longest response of the batch. Staleness counts weight versions: of the newest version
in a trajectory, or of the oldest one (`worst`). A row is one training step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning, by_estimator, without_metric
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.verl.knobs import ACTOR, CORRECTION, KNOBS, ROLLOUT, modes
from grpodoctor.vocabulary.knobs import Setting

_MODE = f"{ACTOR}.policy_loss.loss_mode"
_OBSERVED = ("grpodoctor_vanilla", "grpodoctor", "grpodoctor_gspo")
"""Losses of the hook that report the clip by side."""
_AGGREGATION = f"{ACTOR}.loss_agg_mode"
_IS = f"{CORRECTION}.rollout_is"
_V1 = "trainer.use_v1"
_LIMIT = "data.max_response_length"
_ROUND = (64, 100)
"""A limit is a multiple of one of these sizes; the longest of random lengths rarely is."""
_MIN_AT_LIMIT = 3
"""Steps whose longest response has the same round length, which is then the limit."""
_MICRO = "tokens of a micro-batch, then micro-batches and ranks with equal weight"
_TOKEN_MEANS = ("token-mean", "seq-mean-token-mean")
_TOKEN_SUMS = ("token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm")
_SEQUENCES = "responses, without aborted ones"
_VALIDATION = "set trainer.test_freq above 0 and give data.val_files"
_LOGPROBS = f"set {ROLLOUT}.calculate_log_probs=True"
_SUM_CAVEAT = "this loss_agg_mode sums over tokens, so the value is not an entropy per token"


def _entropy(key: str, where: str) -> tuple[KeyMeaning, ...]:
    return (
        KeyMeaning(key, "entropy/mean", over=_MICRO, policies=where,
            when={_AGGREGATION: _TOKEN_MEANS}),
        KeyMeaning(key, policies=where, when={_AGGREGATION: _TOKEN_SUMS}, caveat=_SUM_CAVEAT),
    )


_LOSS = (
    *_entropy("actor/entropy", "old"),
    *_entropy("actor/entropy_loss", "learner"),
    KeyMeaning("actor/pg_loss", "optimizer/loss", over=_MICRO),
    *without_metric("actor/loss"),
    KeyMeaning("actor/grad_norm", "optimizer/grad_norm", over="mini-batches"),
    KeyMeaning("actor/lr", "optimizer/learning_rate"),
    KeyMeaning("actor/ppo_kl", "kl/old_policy/k1", over=_MICRO, estimator="k1",
        policies="old | learner", structural_zero=RATIO_IS_ONE,
        when={
              _MODE: modes("vanilla", "gspo", "sapo", "geo_mean", "cispo", "clip_cov", "gpg",
                  "dppo_tv", "dppo_kl")}),
    KeyMeaning("actor/ppo_kl", over=_MICRO, when={_MODE: modes("kl_cov")},
        caveat="with kl_cov it is the mean absolute log-ratio, not a divergence"),
    *by_estimator("actor/kl_loss", "kl/reference/", f"{ACTOR}.kl_loss_type",
        {"k1": ("kl", "k1"), "k2": ("mse", "k2"), "k3": ("low_var_kl", "k3")}, over=_MICRO,
        policies="learner | reference", how_to_log=f"set {ACTOR}.use_kl_loss=True and {ACTOR}.kl_loss_coef=0",
        when={_AGGREGATION: _TOKEN_MEANS}),
    KeyMeaning("actor/kl_loss", policies="learner | reference", when={_AGGREGATION: _TOKEN_SUMS},
        caveat="this loss_agg_mode sums over tokens, so the value is no divergence per token"),
    KeyMeaning("actor/kl_loss", over=_MICRO, when={f"{ACTOR}.kl_loss_type": ("abs",)},
        caveat="the mean absolute log-ratio, not a divergence"),
    KeyMeaning("actor/reward_kl_penalty", "kl/reference/k1", estimator="k1",
        over="tokens of a response, then responses", policies="old | reference",
        how_to_log="set algorithm.use_kl_in_reward=True and algorithm.kl_ctrl.kl_coef=0"),
    KeyMeaning("critic/kl", "kl/reference/k1", estimator="k1",
        over="tokens of a response, then responses", policies="old | reference",
        caveat="the name of actor/reward_kl_penalty in early 2025"),
    KeyMeaning("actor/kl_coef", "optimizer/kl_coefficient"),
    *without_metric("actor/reward_kl_penalty_coeff", "critic/kl_coeff"),
)
_CLIP = (
    KeyMeaning("actor/pg_clipfrac", "clip/any_rate", over=_MICRO,
        mask="only where the clip removes the gradient", policies="learner / old",
        when={_MODE: modes("vanilla", "dppo_tv", "dppo_kl", "gpg")}, structural_zero=RATIO_IS_ONE),
    KeyMeaning("actor/pg_clipfrac", "clip/any_rate",
        over="tokens; all tokens of a response share one ratio", policies="learner / old",
        when={_MODE: modes("gspo")}, structural_zero=RATIO_IS_ONE),
    KeyMeaning("actor/pg_clipfrac", "clip/high_rate", over=_MICRO, policies="learner / old",
        when={_MODE: modes("geo_mean")}, structural_zero=RATIO_IS_ONE,
        caveat="with geo_mean it counts the high side only"),
    KeyMeaning("actor/pg_clipfrac", over=_MICRO, when={_MODE: modes("cispo")},
        caveat="counts ratios outside the bounds for any sign of A; with cispo they still have a "
        "gradient"),
    KeyMeaning("actor/pg_clipfrac", over=_MICRO, when={_MODE: modes("clip_cov")},
        caveat="tokens selected by covariance, not clipped ratios"),
    KeyMeaning("actor/pg_clipfrac", when={_MODE: modes("sapo", "kl_cov")},
        caveat="always 0: this loss clips nothing"),
    KeyMeaning("actor/pg_clipfrac_lower", "clip/dual_rate", over=_MICRO,
        mask="A < 0 and a ratio above clip_ratio_c", policies="learner / old",
        when={_MODE: modes("vanilla", "clip_cov")}, structural_zero=RATIO_IS_ONE,
        caveat="the dual clip for negative advantages, not the low side"),
    KeyMeaning("actor/pg_clipfrac_lower", "clip/low_rate", over=_MICRO, policies="learner / old",
        when={_MODE: modes("geo_mean")}, structural_zero=RATIO_IS_ONE,
        caveat="with geo_mean it is the clip for A < 0"),
    KeyMeaning("actor/pg_clipfrac_lower", when={_MODE: modes("gspo", "sapo", "kl_cov")},
        caveat="always 0: this loss has no dual clip"),
    KeyMeaning("actor/pg_clipfrac_lower", when={_MODE: modes("cispo", "dppo_tv", "dppo_kl", "gpg")},
        caveat="this loss has no dual clip that removes the gradient"),
    KeyMeaning("actor/grpodoctor/clip_low_rate", "clip/low_rate", over=_MICRO,
        policies="learner / old", when={_MODE: _OBSERVED}, structural_zero=RATIO_IS_ONE),
    KeyMeaning("actor/grpodoctor/clip_high_rate", "clip/high_rate", over=_MICRO,
        policies="learner / old", when={_MODE: _OBSERVED}, structural_zero=RATIO_IS_ONE),
    *without_metric("actor/grpodoctor/clip_low", "actor/grpodoctor/clip_high"),
)
_REWARD = (
    KeyMeaning("critic/score/mean", "reward/mean", over=_SEQUENCES,
        mask="with filter_groups, only groups whose rewards differ",
        caveat="the raw score, despite the name; GRPO has no critic"),
    KeyMeaning("critic/score/max", "reward/max", over=_SEQUENCES),
    KeyMeaning("critic/score/min", "reward/min", over=_SEQUENCES),
    KeyMeaning("critic/rewards/<statistic>", over=_SEQUENCES,
        caveat="measured after the KL penalty was subtracted"),
    KeyMeaning("critic/advantages/mean", "advantage/mean", over="response tokens"),
    KeyMeaning("critic/advantages/max", "advantage/max", over="response tokens"),
    KeyMeaning("critic/advantages/min", "advantage/min", over="response tokens"),
    KeyMeaning("critic/returns/<statistic>", over="response tokens"),
    KeyMeaning("critic/values/mean", "critic/value_mean", over="response tokens"),
    KeyMeaning("critic/values/<statistic>", over="response tokens"),
    KeyMeaning("critic/vf_explained_var", "critic/explained_variance", over="response tokens"),
    KeyMeaning("critic/vf_loss", "critic/loss", over=_MICRO),
    KeyMeaning("critic/grad_norm", "critic/grad_norm", over="mini-batches"),
    *without_metric("critic/vf_clipfrac", "critic/vpred_mean", "critic/lr"),
    KeyMeaning("val-core/<path>/acc/mean@<n>", "accuracy/heldout", otherwise="reward/heldout",
        over="validation responses", how_to_log=_VALIDATION),
    KeyMeaning("val-core/<path>/reward/mean@<n>", "reward/heldout", over="validation responses",
        how_to_log=_VALIDATION),
    KeyMeaning("val-aux/<path>/reward/mean@<n>", "reward/heldout", over="validation responses"),
    KeyMeaning("val/test_score/<path>", "reward/heldout", over="validation responses"),
    KeyMeaning("val-core/<path>/<variable>/mean@<n>", "reward/heldout",
        over="validation responses", how_to_log=_VALIDATION),
    KeyMeaning("val/<path>/test_score", "reward/heldout", over="validation episodes",
        caveat="logged by verl-agent"),
    KeyMeaning("val/<path>/pass@1", "accuracy/heldout", over="validation responses",
        caveat="logged by rLLM"),
    KeyMeaning("val/success_rate", "accuracy/heldout", over="validation episodes",
        caveat="logged by verl-agent"),
    KeyMeaning("val/reward/accuracy", "accuracy/heldout", over="validation responses",
        caveat="logged by forks; `val/test_score` may be of another set of prompts"),
    *without_metric("val-<path>", "val/<path>"),
)
_LENGTH = (
    KeyMeaning("response_length/mean", "length/mean", over="responses",
        caveat="includes tokens of tools and observations"),
    KeyMeaning("response_length/max", "length/max", over="responses"),
    KeyMeaning("response_length/min", "length/min", over="responses"),
    KeyMeaning("response_length/clip_ratio", "length/truncated_rate", over="responses",
        when={_V1: (False,)}),
    KeyMeaning(("response_length/clip_ratio", "response_length/max"), "length/truncated_rate",
        formula="at-limit", knob="max_length", over="responses", when={_V1: (True,)},
        caveat="V1 pads to the longest response, which therefore always counts as truncated"),
    *without_metric("response_length_non_aborted/<statistic>"),
    KeyMeaning("response/aborted_ratio", "rollouts/aborted_rate", over="responses",
        caveat="responses without a token"),
    KeyMeaning("prompt_length/mean", "length/prompt_mean", over="responses"),
    KeyMeaning("prompt_length/clip_ratio", "length/prompt_truncated_rate", over="responses",
        when={_V1: (False,)}),
    KeyMeaning("prompt_length/clip_ratio", when={_V1: (True,)},
        caveat="V1 pads to the longest prompt, which therefore always counts as truncated"),
    *without_metric("prompt_length/<statistic>"),
    KeyMeaning("executor_invalid_action_rate", "environment/invalid_action_rate",
        over="responses in which the environment rejected the executor's action",
        caveat="logged by the AgentGym-RL fork of verl"),
    KeyMeaning("num_turns/mean", "environment/turns_mean", over="responses",
        caveat="counts the messages of both sides"),
    KeyMeaning("tool_call_counts/mean", "tools/calls_per_response", over="responses"),
    *without_metric("num_turns/<statistic>", "tool_call_counts/<statistic>"),
    KeyMeaning("episode/success_rate", "accuracy/train", over="episodes",
        caveat="logged by verl-agent"),
    KeyMeaning("episode/valid_action_ratio", "environment/invalid_action_rate",
        formula="one-minus", over="turns", caveat="logged by verl-agent"),
    KeyMeaning("episode/length/mean", "environment/turns_mean", over="episodes"),
    KeyMeaning("episode/tool_call_count/mean", "tools/calls_per_response", over="episodes"),
    *without_metric("episode/<path>"),
    KeyMeaning("invalid_action_rate/<task>", "environment/invalid_action_rate", over="responses",
        caveat="logged by AgentGym-RL"),
    KeyMeaning("env_rounds/mean", "environment/turns_mean", over="responses",
        caveat="logged by AgentGym-RL"),
)
_GROUPS = (
    KeyMeaning("training/filter_groups/<count>", unit="responses",
        caveat="a count of responses, not a share of groups"),
    KeyMeaning("train/num_gen_batches", "groups/generated_per_kept", over="batches"),
    KeyMeaning("group_reward_all_zero_rate", "groups/all_incorrect_rate", over="groups"),
)
_MISMATCH = (
    KeyMeaning("training/rollout_probs_diff_mean", "mismatch/prob_diff_mean", over="tokens",
        policies="old - sampler", how_to_log=_LOGPROBS),
    KeyMeaning("training/rollout_probs_diff_max", "mismatch/prob_diff_max/worst_sequence",
        over="tokens", policies="old - sampler", how_to_log=_LOGPROBS),
    KeyMeaning("training/rollout_probs_diff_std", over="tokens"),
    *without_metric("training/rollout_probs_diff_valid"),
    KeyMeaning("training/rollout_actor_probs_pearson_corr", "mismatch/pearson", over="tokens",
        policies="old, sampler", how_to_log=_LOGPROBS),
    KeyMeaning("rollout_corr/kl", "mismatch/kl_k1", over="tokens", estimator="k1",
        policies="sampler | old", how_to_log=_LOGPROBS),
    KeyMeaning("rollout_corr/k3_kl", "mismatch/kl_k3", over="tokens", estimator="k3",
        policies="sampler | old", how_to_log=_LOGPROBS),
    KeyMeaning("rollout_corr/chi2_token", "mismatch/chi2", over="tokens"),
    KeyMeaning("rollout_corr/rollout_is_mean", "correction/weight_mean",
        caveat="the mean of the truncated weights"),
    KeyMeaning("rollout_corr/rollout_rs_masked_fraction", "correction/masked_rate", over="tokens"),
    KeyMeaning("rollout_corr/rollout_is_eff_sample_size",
        caveat="computed from the truncated weights, so it looks healthy even if the raw weights "
        "are not"),
    KeyMeaning("rollout_corr/rollout_is_max", when={_IS: ("token",)},
        caveat="measured after the cap, so it never exceeds it"),
    KeyMeaning("rollout_corr/rollout_is_max", when={_IS: ("sequence",)},
        unit="ratio of a whole response"),
    KeyMeaning("rollout_corr/rollout_is_ratio_fraction_high", "correction/capped_rate",
        over="raw weights; responses with rollout_is=sequence"),
    *without_metric("rollout_corr/<path>"),
    KeyMeaning("mismatch/kl", "mismatch/kl_k1", over="tokens", estimator="k1",
        policies="sampler | old", until="0.7"),
    KeyMeaning("mismatch/k3_kl", "mismatch/kl_k3", over="tokens", estimator="k3",
        policies="sampler | old", until="0.7"),
    KeyMeaning("mismatch/<path>", until="0.7"),
)
_REST = (
    KeyMeaning("training/off_policy/trajectory_staleness/mean", "staleness/mean",
        unit="model versions", over="trajectories, by their newest version"),
    KeyMeaning("training/off_policy/trajectory_staleness_worst/max", "staleness/max",
        unit="model versions", over="trajectories, by their oldest version"),
    KeyMeaning("training/off_policy/evicted_samples", "rollouts/evicted"),
    KeyMeaning("rollout/moe/max_vio/avg", "experts/load_max_over_mean", formula="plus-one",
        over="layers", caveat="the load over the mean load, minus 1"),
    KeyMeaning("distillation/loss", "kl/teacher", policies="learner | teacher", over=_MICRO,
        caveat="the distillation loss; its divergence is a setting"),
    *without_metric("training/off_policy/<path>"),
    KeyMeaning("perf/time_per_step", "time/step", unit="s"),
    KeyMeaning("timing_s/gen", "time/rollout", unit="s"),
    KeyMeaning("timing_s/update_actor", "time/learn", unit="s"),
    KeyMeaning("timing_s/save_checkpoint", "time/checkpoint", unit="s",
        caveat="only at steps that save one"),
    *without_metric("training/global_step", "training/epoch"),
    *without_metric("perf/<path>", "timing_s/<path>", "timing_per_token_ms/<path>",
        "global_seqlen/<path>", "fully_async/<path>", "rollout/moe/<path>",
        "training/num_turns/<path>", "training/rollout_failure/<path>",
        "distillation/<path>"),
)


def _infer_settings(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Infer which trainer wrote the rows, and its length limit if responses reach it.

    V1 pads to the longest response of a batch, V0 to the limit. With V1 at least one response is
    always as long as the padding. With V0 the longest response has the same length in every step
    with a truncated response.
    """
    truncated, longest = "response_length/clip_ratio", "response_length/max"
    with_rate = [row for row in rows if truncated in row]
    lengths = [row[longest] for row in with_rate if longest in row]
    settings: dict[str, Setting] = {}
    if any(row[truncated] == 0 for row in with_rate):
        settings[_V1] = False
    elif len(with_rate) > 2 and lengths:
        settings[_V1] = len(set(lengths)) > 1
    limit = max(lengths, default=0.0)
    if lengths.count(limit) >= _MIN_AT_LIMIT and any(limit % size == 0 for size in _ROUND):
        settings[_LIMIT] = int(limit)
    return settings


FRAMEWORK = Framework(
    name="verl",
    title="verl",
    how_to_dump="set trainer.rollout_data_dir",
    how_to_dump_logprobs="add rollout_log_probs, old_log_probs and responses to the rows of "
    "trainer.rollout_data_dir",
    aliases=("volcengine-verl",),
    row_keys=RowKeys(step=("step", "training/global_step", "_step")),
    signature=(
        "actor/pg_clipfrac",
        "actor/pg_loss",
        "actor/ppo_kl",
        "critic/score/mean",
        "response_length/clip_ratio",
        "rollout_corr/<path>",
        "training/rollout_probs_diff_mean",
        "timing_per_token_ms/<path>",
    ),
    version_key="verl_version",
    infer_settings=_infer_settings,
    defaults={_MODE: "vanilla", _AGGREGATION: "token-mean", f"{ACTOR}.kl_loss_type": "low_var_kl"},
    meanings=(*_LOSS, *_CLIP, *_REWARD, *_LENGTH, *_GROUPS, *_MISMATCH, *_REST),
    knobs=KNOBS,
)
