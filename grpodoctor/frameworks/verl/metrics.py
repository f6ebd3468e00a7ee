"""verl's trainers, V0 and V1, and recipes that log through them. Checked from 0.3 to after 0.9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_CORRECTION = "algorithm.rollout_correction"
_MODE = f"{_ACTOR}.policy_loss.loss_mode"
_AGGREGATION = f"{_ACTOR}.loss_agg_mode"
_IS = f"{_CORRECTION}.rollout_is"
_V1 = "trainer.use_v1"
_MICRO = "tokens of a micro-batch, then a plain mean of micro-batches and ranks"
_TOKEN_MEANS = ("token-mean", "seq-mean-token-mean")
_TOKEN_SUMS = ("token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm")
_SEQUENCES = "responses, aborted ones left out"
_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)
_LOGPROBS = f"set {_ROLLOUT}.calculate_log_probs=True"
_SUM_LIE = "under a loss_agg_mode that sums tokens it is no entropy per token"


def _entropy(key: str, where: str) -> tuple[Meaning, ...]:
    return (
        Meaning(key=key, metric="entropy/mean", over=_MICRO, policies=where,
                when={_AGGREGATION: _TOKEN_MEANS}),
        Meaning(key=key, policies=where, when={_AGGREGATION: _TOKEN_SUMS}, lie=_SUM_LIE),
    )


_LOSS = (
    *_entropy("actor/entropy", "old"),
    *_entropy("actor/entropy_loss", "learner"),
    Meaning(key="actor/pg_loss", metric="optimizer/loss", over=_MICRO),
    Meaning(key="actor/loss"),
    Meaning(key="actor/grad_norm", metric="optimizer/grad_norm", over="mini-batches"),
    Meaning(key="actor/lr", metric="optimizer/learning_rate"),
    Meaning(key="actor/ppo_kl", metric="kl/old_policy/k1", over=_MICRO, estimator="k1",
            policies="old | learner", structural_zero=_ONE_UPDATE,
            when={_MODE: ("vanilla", "gspo", "sapo", "geo_mean", "cispo", "clip_cov", "gpg",
                          "dppo_tv", "dppo_kl")}),
    Meaning(key="actor/ppo_kl", over=_MICRO, when={_MODE: ("kl_cov",)},
            lie="the mean absolute log-ratio under kl_cov, no divergence"),
    Meaning(key="actor/kl_loss", metric="kl/reference/k3", over=_MICRO, estimator="k3, clamped",
            policies="learner | reference", when={f"{_ACTOR}.kl_loss_type": ("low_var_kl", "k3")},
            how=f"set {_ACTOR}.use_kl_loss=True"),
    Meaning(key="actor/kl_loss", metric="kl/reference/k1", over=_MICRO, estimator="k1",
            policies="learner | reference", when={f"{_ACTOR}.kl_loss_type": ("kl", "k1")},
            how=f"set {_ACTOR}.use_kl_loss=True"),
    Meaning(key="actor/kl_loss", metric="kl/reference/k2", over=_MICRO, estimator="k2",
            policies="learner | reference", when={f"{_ACTOR}.kl_loss_type": ("mse", "k2")},
            how=f"set {_ACTOR}.use_kl_loss=True"),
    Meaning(key="actor/kl_loss", over=_MICRO, when={f"{_ACTOR}.kl_loss_type": ("abs",)},
            lie="the mean absolute log-ratio, no divergence"),
    Meaning(key="actor/reward_kl_penalty", metric="kl/reference/k1", estimator="k1",
            over="tokens of a response, then responses", policies="old | reference",
            how="set algorithm.use_kl_in_reward=True"),
    Meaning(key="actor/kl_coef"),
    Meaning(key="actor/reward_kl_penalty_coeff"),
)
_CLIP = (
    Meaning(key="actor/pg_clipfrac", metric="clip/any_rate", over=_MICRO,
            mask="only where the clip removes the gradient", policies="learner / old",
            when={_MODE: ("vanilla", "dppo_tv", "dppo_kl", "gpg")}, structural_zero=_ONE_UPDATE),
    Meaning(key="actor/pg_clipfrac", metric="clip/any_rate", over="tokens, all of a response alike",
            policies="learner / old", when={_MODE: ("gspo",)}, structural_zero=_ONE_UPDATE),
    Meaning(key="actor/pg_clipfrac", metric="clip/high_rate", over=_MICRO,
            policies="learner / old", when={_MODE: ("geo_mean",)}, structural_zero=_ONE_UPDATE,
            lie="the high side alone under geo_mean"),
    Meaning(key="actor/pg_clipfrac", over=_MICRO, when={_MODE: ("cispo",)},
            lie="ratios outside the band whatever the sign of A; under cispo they keep a gradient"),
    Meaning(key="actor/pg_clipfrac", over=_MICRO, when={_MODE: ("clip_cov",)},
            lie="tokens that the covariance chose, no clip of the ratio"),
    Meaning(key="actor/pg_clipfrac", when={_MODE: ("sapo", "kl_cov")},
            lie="always 0: this loss clips nothing"),
    Meaning(key="actor/pg_clipfrac_lower", metric="clip/dual_rate", over=_MICRO,
            mask="A < 0 and a ratio above clip_ratio_c", policies="learner / old",
            when={_MODE: ("vanilla", "clip_cov")}, structural_zero=_ONE_UPDATE,
            lie="the second clip of negative advantages, not the low side"),
    Meaning(key="actor/pg_clipfrac_lower", metric="clip/low_rate", over=_MICRO,
            policies="learner / old", when={_MODE: ("geo_mean",)}, structural_zero=_ONE_UPDATE,
            lie="under geo_mean the clip of A < 0"),
    Meaning(key="actor/pg_clipfrac_lower", when={_MODE: ("gspo", "sapo", "kl_cov")},
            lie="always 0: this loss has no second clip"),
    Meaning(key="actor/pg_clipfrac_lower", when={_MODE: ("cispo", "dppo_tv", "dppo_kl", "gpg")},
            lie="no second clip that removes a gradient under this loss"),
)
_REWARD = (
    Meaning(key="critic/score/mean", metric="reward/mean", over=_SEQUENCES,
            lie="there is no critic: the raw score, for GRPO too"),
    Meaning(key="critic/score/<extreme>", over=_SEQUENCES),
    Meaning(key="critic/rewards/<statistic>", over=_SEQUENCES,
            lie="after the KL penalty in the reward"),
    Meaning(key="critic/advantages/mean", metric="advantage/mean", over="response tokens"),
    Meaning(key="critic/advantages/<statistic>", over="response tokens"),
    Meaning(key="critic/returns/<statistic>", over="response tokens"),
    Meaning(key="critic/values/<statistic>", over="response tokens"),
    Meaning(key="critic/vf_explained_var"),
    Meaning(key="val-core/<path>/mean@<n>", metric="accuracy/heldout", over="validation responses",
            how="set trainer.test_freq above 0 and give data.val_files"),
    Meaning(key="val/test_score/<path>", metric="reward/heldout", over="validation responses"),
    Meaning(key="val-<path>"),
)
_LENGTH = (
    Meaning(key="response_length/mean", metric="length/mean", over="responses",
            lie="tokens of tools and observations count"),
    Meaning(key="response_length/max", metric="length/max", over="responses"),
    Meaning(key="response_length/min", over="responses"),
    Meaning(key="response_length/clip_ratio", metric="length/truncated_rate", over="responses",
            when={_V1: (False,)}),
    Meaning(key="response_length/clip_ratio", over="responses", when={_V1: (True,)},
            lie="V1 pads to the longest response only: the longest always counts as truncated"),
    Meaning(key="response_length_non_aborted/<statistic>"),
    Meaning(key="response/aborted_ratio"),
    Meaning(key="prompt_length/<statistic>"),
    Meaning(key="num_turns/<statistic>"),
    Meaning(key="tool_call_counts/<statistic>"),
)
_GROUPS = (
    Meaning(key="training/filter_groups/<count>", unit="responses",
            lie="a count of responses, no share of groups"),
    Meaning(key="train/num_gen_batches", metric="groups/generated_per_kept", over="batches"),
    Meaning(key="group_reward_all_zero_rate", metric="groups/all_incorrect_rate", over="groups"),
)
_MISMATCH = (
    Meaning(key="training/rollout_probs_diff_mean", metric="mismatch/prob_diff_mean",
            over="tokens", policies="old - sampler", how=_LOGPROBS),
    Meaning(key="training/rollout_probs_diff_max", metric="mismatch/prob_diff_max/worst_sequence",
            over="tokens", policies="old - sampler", how=_LOGPROBS),
    Meaning(key="training/rollout_probs_diff_std", over="tokens"),
    Meaning(key="training/rollout_probs_diff_valid"),
    Meaning(key="training/rollout_actor_probs_pearson_corr", metric="mismatch/pearson",
            over="tokens", policies="old, sampler", how=_LOGPROBS),
    Meaning(key="rollout_corr/kl", metric="mismatch/kl_k1", over="tokens", estimator="k1",
            policies="sampler | old", how=_LOGPROBS),
    Meaning(key="rollout_corr/k3_kl", metric="mismatch/kl_k3", over="tokens", estimator="k3",
            policies="sampler | old", how=_LOGPROBS),
    Meaning(key="rollout_corr/chi2_token", metric="mismatch/chi2", over="tokens"),
    Meaning(key="rollout_corr/rollout_is_mean", metric="correction/weight_mean",
            lie="of the truncated weights"),
    Meaning(key="rollout_corr/rollout_is_eff_sample_size",
            lie="of the truncated weights: healthy by construction"),
    Meaning(key="rollout_corr/rollout_is_max", when={_IS: ("token",)},
            lie="after the cap: never above it"),
    Meaning(key="rollout_corr/rollout_is_max", when={_IS: ("sequence",)},
            unit="ratio of a whole response"),
    Meaning(key="rollout_corr/rollout_is_ratio_fraction_high", metric="correction/capped_rate",
            over="raw weights; of responses under rollout_is=sequence"),
    Meaning(key="rollout_corr/<path>"),
    Meaning(key="mismatch/kl", metric="mismatch/kl_k1", over="tokens", estimator="k1",
            policies="sampler | old", until="0.7"),
    Meaning(key="mismatch/k3_kl", metric="mismatch/kl_k3", over="tokens", estimator="k3",
            policies="sampler | old", until="0.7"),
    Meaning(key="mismatch/<path>", until="0.7"),
)
_REST = (
    Meaning(key="training/off_policy/trajectory_staleness/mean", metric="staleness/mean",
            unit="model versions", over="trajectories, by their newest version"),
    Meaning(key="training/off_policy/trajectory_staleness/max", metric="staleness/max",
            unit="model versions", over="trajectories"),
    Meaning(key="training/off_policy/<path>"),
    Meaning(key="perf/time_per_step", metric="time/step", unit="s"),
    Meaning(key="timing_s/gen", metric="time/rollout", unit="s"),
    Meaning(key="timing_s/update_actor", metric="time/learn", unit="s"),
    Meaning(key="training/global_step"),
    Meaning(key="training/epoch"),
    *(Meaning(key=f"{family}/<path>") for family in (
        "perf", "timing_s", "timing_per_token_ms", "global_seqlen", "fully_async", "rollout/moe",
        "training/num_turns", "training/rollout_failure")),
)
_LOSSES: Mapping[Setting, Setting] = {
    "vanilla": "ppo_clip", "gspo": "gspo", "geo_mean": "gmpo", "cispo": "cispo", "sapo": "sapo",
    "dppo_tv": "dppo_binary_tv", "dppo_kl": "dppo_binary_kl", "clip_cov": "clip_cov",
    "kl_cov": "kl_cov",
}
_AGGREGATIONS: Mapping[Setting, Setting] = {
    "token-mean": "token-mean", "seq-mean-token-mean": "sequence-mean",
    "seq-mean-token-sum": "sequence-mean-token-sum", "seq-mean-token-sum-norm": "constant",
}


def _advantage(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    if setting == "grpo":
        by_std = others.get("algorithm.norm_adv_by_std_in_grpo", True)
        return "group" if by_std else "centred"
    return {"rloo": "leave_one_out", "gae": "gae", "gdpo": "gdpo"}.get(str(setting))


def _updates(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    """Mini-batches of a batch, both counted in prompts, times the passes over it."""
    whole, epochs = others.get("data.train_batch_size"), others.get(f"{_ACTOR}.ppo_epochs", 1)
    numbers = (setting, whole, epochs)
    if not all(isinstance(each, int) and each > 0 for each in numbers):
        return None
    return max(1, int(whole or 1) // int(setting)) * int(epochs)


def _hints(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Which trainer wrote the rows: V1 pads to the longest response, V0 to the limit.

    So one response at least is as long as V1's padding, and V0's longest, wherever one was cut, is
    as long as ever.
    """
    cut, longest = "response_length/clip_ratio", "response_length/max"
    whole = [row for row in rows if cut in row]
    if any(row[cut] == 0 for row in whole):
        return {_V1: False}
    lengths = {row[longest] for row in whole if longest in row}
    return {_V1: len(lengths) > 1} if len(whole) > 2 and lengths else {}


def _kl(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    return setting if others.get(f"{_ACTOR}.use_kl_loss") is True else 0.0


FRAMEWORK = Framework(
    name="verl",
    title="verl",
    dumps="set trainer.rollout_data_dir",
    family=("volcengine-verl",),
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
    hints=_hints,
    defaults={_MODE: "vanilla", _AGGREGATION: "token-mean", f"{_ACTOR}.kl_loss_type": "low_var_kl"},
    meanings=(*_LOSS, *_CLIP, *_REWARD, *_LENGTH, *_GROUPS, *_MISMATCH, *_REST),
    knobs=(
        KnobMeaning(key=_MODE, knob="loss", of=_LOSSES, default="vanilla"),
        KnobMeaning(key=_AGGREGATION, knob="aggregation", of=_AGGREGATIONS, default="token-mean"),
        KnobMeaning(key="algorithm.adv_estimator", knob="advantage", of=_advantage),
        KnobMeaning(key=f"{_ACTOR}.clip_ratio_low", knob="clip_low"),
        KnobMeaning(key=f"{_ACTOR}.clip_ratio", knob="clip_low"),
        KnobMeaning(key=f"{_ACTOR}.clip_ratio_high", knob="clip_high"),
        KnobMeaning(key=f"{_ACTOR}.clip_ratio", knob="clip_high"),
        KnobMeaning(key=f"{_ACTOR}.kl_loss_coef", knob="kl_coefficient", of=_kl),
        KnobMeaning(key=f"{_ACTOR}.entropy_coeff", knob="entropy_coefficient"),
        KnobMeaning(key=f"{_ACTOR}.optim.lr", knob="learning_rate"),
        KnobMeaning(key=f"{_ACTOR}.ppo_mini_batch_size", knob="updates_per_batch", of=_updates),
        KnobMeaning(key="data.train_batch_size", knob="prompts_per_batch"),
        KnobMeaning(key="data.max_response_length", knob="max_length"),
        KnobMeaning(key=f"{_ROLLOUT}.n", knob="group_size"),
        KnobMeaning(key=f"{_ROLLOUT}.temperature", knob="temperature"),
        KnobMeaning(key="algorithm.filter_groups.enable", knob="dynamic_sampling"),
        KnobMeaning(key=_IS, knob="correction",
                    of={"token": "tis_token", "sequence": "tis_sequence"}),
        KnobMeaning(key=f"{_CORRECTION}.rollout_is_threshold", knob="correction_cap"),
    ),
)
