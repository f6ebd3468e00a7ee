"""ROLL's RLVR and agentic pipelines, checked in the source of v0.3.0 and of commit 8eb27cc2.

Keys with `@sum` are sums over micro-batches and ranks, each divided by the tokens or responses of
the whole update, then averaged over the updates of a step: exact means. Until v0.2 they are means
of micro-batches. The console keeps the tag, and the trackers remove it. `critic/` keys are taken
over the batch before the update. With several domains, keys of one domain begin with its name; the
others cover all domains. RLVR's keys are `token/`, those of the agentic pipeline `tokens/` and
`rollout/`. A row is one step; the first step is 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning, without_metric
from grpodoctor.frameworks.roll.config_values import BACKWARD_STEPS, FILTERS, PG_WORKER, WEIGHT
from grpodoctor.frameworks.roll.knobs import KNOBS
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_LEVEL, _SEGMENT = "importance_sampling", "ratio_type"
_HAS_SUMS = "losses are sums over tokens"
_IS_CAPPED = "capped weights are counted"
# Inferred, and not under the name of a setting: a log without a config has no setting.
_MEANS: Mapping[str, tuple[Setting, ...]] = {
    "loss_agg_mode": ("seq-mean-token-mean", "token-mean"), _HAS_SUMS: (False,)
}
_SUMS: tuple[Mapping[str, tuple[Setting, ...]], ...] = (
    {"loss_agg_mode": ("seq-mean-token-sum", "seq-mean-token-sum-norm")}, {_HAS_SUMS: (True,)}
)
_SUMMED = "a sum over the tokens of a response"
_TOKEN_RATIO: Mapping[str, tuple[Setting, ...]] = {_LEVEL: ("token",), _SEGMENT: ("token",)}
_IN_LOSS = "as loss_agg_mode: tokens of a response, then responses; or all tokens"
_PER_RESPONSE = "tokens of a response, then responses"
_TWO_SIDED = (
    "counts ratios outside the bounds for any sign of A; with importance_sampling=seq also the "
    "positions of prompt and padding"
)
_PADDED = "a mean over all positions of the padded batch"
_RECOMPUTED = "enable_old_logprobs_recompute"
_ONE_ENVIRONMENT = "one environment"
"""Whether the log has the metrics of one environment only; inferred from the keys."""
_SHORTEST_PASS = 0.005
"""Seconds. A forward pass over a batch takes longer, and skipping it takes microseconds."""
_VARIANTS = ("cispo", "tis", "topr", "kimi15")
"""Losses of `ActorPGWorker` that log separate keys."""
_LARGEST_FACTOR = 8
"""Factor between a mean over responses and one over tokens that no weighting by length reaches. A
sum over tokens is larger by the length, which is tens to thousands of tokens."""
_MIN_FACTORS = 3
"""Rows whose median decides: a divergence near zero may have any sign and size."""


def _sums(key: str) -> tuple[KeyMeaning, ...]:
    """Rows of a key that holds no share or divergence if losses are summed over tokens."""
    return tuple(KeyMeaning(key, when=when, caveat=_SUMMED) for when in _SUMS)


def _reference(key: str) -> tuple[KeyMeaning, ...]:
    """Rows of the KL loss, which compares with the old policy if there is no reference model."""
    plain: dict[str, tuple[Setting, ...]] = {"is_pure_opd": (False,), "use_opd": (False,), **_MEANS}
    return (
        *(
            KeyMeaning(key, "kl/reference/k3", estimator="k3, at most 10", over=_IN_LOSS,
                policies="learner | reference", when={flag: (True,), **plain},
                how_to_log="set use_kl_loss=true and kl_loss_coef=0")
            for flag in ("use_kl_loss", "enable_reference")
        ),
        *(
            KeyMeaning(key, "kl/teacher", estimator="k3, at most 10", over=_IN_LOSS,
                policies="learner | teacher", when={flag: (True,), **_MEANS})
            for flag in ("is_pure_opd", "use_opd")
        ),
        *_sums(key),
        KeyMeaning(key, when={"enable_reference": (False,)},
            caveat="without a reference model it compares with the old policy"),
    )


_LOSS = (
    *_reference("actor/kl_loss"),
    KeyMeaning("actor/policykl", "kl/old_policy/k1", formula="negated", estimator="k1",
        over=_IN_LOSS, policies="old | learner", when=_MEANS, structural_zero=RATIO_IS_ONE,
        caveat="new minus old: the negative of verl's ppo_kl"),
    *_sums("actor/policykl"),
    KeyMeaning("actor/approxkl", "kl/old_policy/k2", estimator="k2", over=_IN_LOSS,
        policies="old | learner", when=_MEANS, structural_zero=RATIO_IS_ONE),
    *_sums("actor/approxkl"),
    KeyMeaning("actor/clipfrac", "clip/any_rate", over=_IN_LOSS,
        mask="only where the clip removes the gradient; the dual clip is not counted",
        policies="learner / old", when=_MEANS, structural_zero=RATIO_IS_ONE),
    *_sums("actor/clipfrac"),
    *(KeyMeaning(f"actor/ppo_ratio_{side}clipfrac", caveat=_TWO_SIDED)
      for side in ("", "high_", "low_")),
    *(KeyMeaning(f"actor/{name}_clipfrac", caveat=_PADDED)
      for name in ("tis_lower", "tis_upper", "tis_total", "topr_negative_lower",
                   "topr_negative_upper", "topr_negative_total", "cispo_cispo_lower",
                   "cispo_cispo_upper", "cispo_cispo_total")),
    KeyMeaning("actor/ratio_mean", "ratio/mean", over=_PER_RESPONSE, policies="learner / old",
        when=_TOKEN_RATIO),
    KeyMeaning("actor/ratio_mean", when={_LEVEL: ("seq",)},
        caveat="the ratio of a response: the geometric mean over its tokens"),
    KeyMeaning("actor/ratio_mean", when={_SEGMENT: ("segment",)},
        caveat="the ratio of a turn: the geometric mean over its tokens"),
    KeyMeaning("actor/ratio_max", "ratio/max", over="tokens", policies="learner / old",
        when=_TOKEN_RATIO, since="0.2"),
    KeyMeaning("actor/ratio_max", "ratio/sequence_max", over="responses", policies="learner / old",
        when={_LEVEL: ("seq",)}, since="0.2"),
    KeyMeaning("actor/ratio_max", until="0.2",
        caveat="a mean of the maxima of micro-batches in the first versions"),
    KeyMeaning("actor/valid_sample_ratio", "optimizer/left_out_rate", formula="one-minus",
        over="responses", mask="the share whose mask is not empty after all filters"),
    KeyMeaning(BACKWARD_STEPS, since="0.2", always=True, unit="updates of a rank",
        caveat="the number of updates per batch, which is read as a setting"),
    KeyMeaning("actor/total_loss", "optimizer/loss", over=_IN_LOSS),
    KeyMeaning("actor/lr", "optimizer/learning_rate"),
    *(KeyMeaning(f"{worker}/grad_norm", "optimizer/grad_norm", over="updates, then ranks")
      for worker in ("actor_train", "student_train")),
    *(KeyMeaning(f"actor_train/{name}", over="layers",
          caveat="divided by its coefficient, and zero for layers without experts")
      for name in ("load_balancing_loss", "seq_load_balancing_loss", "global_load_balancing_loss",
                   "z_loss")),
    *without_metric("actor/<path>", "actor_train/<path>", "student_train/<path>"),
)

_MISMATCH = (
    *(KeyMeaning(f"actor/train_infer_ratio_{level}mean", over=_PER_RESPONSE,
          policies="old / sampler", caveat="the raw ratio, which weights the loss only if set so")
      for level in ("token_", "sequence_", "")),
    *(KeyMeaning(f"actor/train_infer_ratio_{level}_mean", "correction/weight_mean",
          over=_PER_RESPONSE, policies="old / sampler", caveat="the raw ratio, before any cap",
          when={enabled: (True,), f"{WEIGHT}.weight_type": (level,)})
      for level in ("token", "sequence") for enabled in (f"{WEIGHT}.enabled", _IS_CAPPED)),
    KeyMeaning("actor/train_infer_ratio_geometric_mean", "mismatch/kl_k1", formula="log", factor=-1,
        estimator="k1", over=_PER_RESPONSE, policies="sampler | old",
        caveat="the logarithm of the mean over responses, which is at most the mean KL"),
    *(KeyMeaning(f"actor/train_infer_diff_{level}", policies="old - sampler",
          caveat="signed, so differences of both signs cancel")
      for level in ("token_mean", "geometric_mean", "segment_mean", "mean")),
    KeyMeaning("actor/train_infer_diff_sequence_mean",
        caveat="a sum over the tokens of a response"),
    KeyMeaning("actor/is_weight_clipfrac", "correction/capped_rate", over="tokens",
        policies="old / sampler",
        how_to_log="set train_infer_correction.is_weight.enabled=true"),
    KeyMeaning("actor/train_infer_final_mask_mean", "correction/masked_rate", formula="one-minus",
        over="tokens", policies="old / sampler"),
)

_REWARD = (
    KeyMeaning("critic/entropy/mean", "entropy/mean", over="tokens", policies="old",
        zero_is_absent=True,
        caveat="at temperature 1 for any sampling temperature; 0 if old log-probabilities are not "
        "recomputed", how_to_log="set enable_old_logprobs_recompute=true"),
    KeyMeaning("critic/score/mean", "reward/mean", over="responses",
        caveat="the reward worker's score; some workers add penalties to it"),
    KeyMeaning("critic/score/max", "reward/max", over="responses"),
    KeyMeaning("critic/score/min", "reward/min", over="responses"),
    KeyMeaning("critic/correct/mean", "accuracy/train", over="responses with a score of 1",
        zero_is_absent=True, caveat="0 as well if no score is exactly 1"),
    *(KeyMeaning(f"critic/rewards/{statistic}",
          caveat="measured after normalization, clipping and a KL penalty in the reward")
      for statistic in ("mean", "max", "min")),
    KeyMeaning("critic/advantages/mean", "advantage/mean", over="tokens"),
    KeyMeaning("critic/advantages/max", "advantage/max", over="tokens"),
    KeyMeaning("critic/advantages/min", "advantage/min", over="tokens"),
    *(KeyMeaning("critic/kl", f"kl/reference/{estimator}", estimator=estimator, over=_PER_RESPONSE,
          policies="old | reference",
          when={"kl_penalty": (kind,), "enable_reference": (True,), _RECOMPUTED: (True,)})
      for estimator, kind in (("k1", "kl"), ("k2", "mse"))),
    KeyMeaning("critic/kl", when={_RECOMPUTED: (False,)},
        caveat="without old log-probabilities it is minus the reference's log-probability"),
    KeyMeaning("critic/kl", when={"enable_reference": (False,)},
        caveat="0 without a reference model"),
    KeyMeaning("critic/kl", when={"kl_penalty": ("abs", "full")}, caveat="no estimator of a KL"),
    KeyMeaning("critic/loss", "critic/loss", over="tokens of a response, then micro-batches"),
    KeyMeaning("critic/value", "critic/value_mean", over="tokens of a response, then micro-batches"),
    KeyMeaning("critic/clipfrac",
        caveat="without value_clip the squared error instead of a share"),
    KeyMeaning("critic/grad_norm", "critic/grad_norm", over="updates, then ranks"),
    KeyMeaning("val_correct/all/mean", over="responses to all validation prompts",
        caveat="all sets together"),
    KeyMeaning("val_correct/<set>/mean", "accuracy/heldout", over="responses with a score of 1",
        how_to_log="give validation.data_args and set eval_steps"),
    KeyMeaning("val/score/mean", caveat="all environments together"),
    KeyMeaning("val/<tag>/score/mean", "reward/heldout", over="groups of one environment",
        how_to_log="set eval_steps above 0"),
    *without_metric("critic/<path>", "val/<path>", "val_correct/<path>"),
)

_GROUPS = (
    KeyMeaning("group/all_correct_groups_ratio", "groups/all_correct_rate",
        over="groups whose scores are all 1"),
    KeyMeaning("group/all_incorrect_groups_ratio", "groups/all_incorrect_rate",
        over="groups whose scores are all 0"),
    KeyMeaning(("group/all_correct_groups_ratio", "group/all_incorrect_groups_ratio"),
        "groups/zero_variance_rate", formula="sum", over="groups",
        caveat="groups that share any other score count as mixed"),
    KeyMeaning("group/mixed_groups_ratio",
        caveat="includes groups with equal scores other than 0 and 1"),
    *without_metric("group/<path>"),
    KeyMeaning("<domain>/scheduler/off_policy_ratio", "staleness/mean", unit="steps",
        over="prompts of a domain"),
    *without_metric("<domain>/scheduler/<path>", "scheduler/<path>", "<domain>/critic/<path>",
        "<domain>/actor/<path>", "<domain>/token/<path>", "<domain>/time/<path>"),
    KeyMeaning("env/<tag>/action_is_valid", "environment/invalid_action_rate", formula="one-minus",
        over="actions of an episode, then episodes", when={_ONE_ENVIRONMENT: (True,)}),
    KeyMeaning("env/<tag>/num_actions", "environment/turns_mean", over="episodes",
        when={_ONE_ENVIRONMENT: (True,)}),
    *without_metric("env/<path>"),
)


def _lengths(prefix: str) -> tuple[KeyMeaning, ...]:
    return (
        KeyMeaning(f"{prefix}/response_length/mean", "length/mean", over="responses",
            mask="tokens of the policy"),
        KeyMeaning(f"{prefix}/response_length/max", "length/max", over="responses",
            mask="tokens of the policy"),
        KeyMeaning(f"{prefix}/response_length/min", "length/min", over="responses",
            mask="tokens of the policy"),
        KeyMeaning(f"{prefix}/prompt_length/mean", "length/prompt_mean", over="responses"),
    )


_LENGTH = (
    *_lengths("token"),
    *_lengths("tokens"),
    KeyMeaning(("token/total_response_length/clip", "system/batch_size"), "length/truncated_rate",
        formula="ratio", over="responses",
        caveat="the number of responses as long as the limit, divided by all of them"),
    KeyMeaning("token/right_response_length/mean", "length/correct", nan_is_absent=True,
        over="responses with a score of 1", mask="without those at the limit"),
    KeyMeaning("token/error_response_length/mean", "length/incorrect", nan_is_absent=True,
        over="responses with a score of 0", mask="without those at the limit"),
    *without_metric("token/<path>", "tokens/<path>", "rollout/<path>"),
)

_TIME = (
    KeyMeaning("time/step_total", "time/step", unit="s", zero_is_absent=True,
        caveat="with RLVR that of the step before"),
    *(KeyMeaning(key, "time/rollout", unit="s")
      for key in ("time/step_generate", "time/step_rollout", "time/rollout")),
    KeyMeaning("time/step_train", "time/learn", unit="s"),
    *without_metric("time/<path>", "memory/<path>", "system/<path>", "global_seqlen/<path>",
        "mask/<path>", "expand/<path>", "shrink/<path>", "model_update/<path>",
        "reference/<path>", "efficiency/<path>", "latency/<path>", "throughput/<path>",
        "vllm/<path>"),
)


def _infer_settings(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Infer what keys, times and values say about settings."""
    keys = {key for row in rows for key in row}
    settings: dict[str, Setting] = {}
    updates = {row[BACKWARD_STEPS] for row in rows if BACKWARD_STEPS in row}
    if len(updates) == 1 and (count := updates.pop()) >= 1:
        settings[BACKWARD_STEPS] = int(count)
    environments = {key.split("/")[1] for key in keys if key.startswith("env/") and key.count("/") > 1}
    settings[_ONE_ENVIRONMENT] = len(environments) == 1
    if "actor/train_infer_final_mask_mean" in keys:
        settings[FILTERS] = True
    if "actor/is_weight_clipfrac" in keys:
        settings[_IS_CAPPED] = True
    if any(key.startswith("student_train/") for key in keys):
        settings["is_pure_opd"] = True
    variants = [name for name in _VARIANTS if any(key.startswith(f"actor/{name}_") for key in keys)]
    if variants:
        settings |= {"actor_train.worker_cls": PG_WORKER, "actor_train.pg_variant": variants[0]}
    settings[_RECOMPUTED] = any(row.get("critic/entropy/mean") for row in rows)
    if _is_summed(rows):
        settings[_HAS_SUMS] = True
    has_reference = _has_reference(rows, keys)
    return settings if has_reference is None else {**settings, "enable_reference": has_reference}


def _is_summed(rows: Sequence[Mapping[str, float]]) -> bool:
    """Whether losses are sums over the tokens of a response.

    In two pairs of keys the values are similar, and `loss_agg_mode` changes one of the two.
    """
    pairs = (("actor/clipfrac", "actor/ppo_ratio_clipfrac"), ("actor/kl_loss", "critic/kl"))
    for summed, mean in pairs:
        factors = [
            row[summed] / abs(row[key])
            for row in rows
            for key in row
            if (key == mean or key.endswith(f"/{mean}")) and row[key] and row.get(summed)
        ]
        if len(factors) >= _MIN_FACTORS:
            return statistics.median(factors) > _LARGEST_FACTOR
    return False


def _has_reference(rows: Sequence[Mapping[str, float]], keys: set[str]) -> bool | None:
    """Whether a reference model scored the responses; None if the times do not say."""
    if any(key.startswith("time/reference/") for key in keys):
        return True
    passes = ("time/ref_log_probs_values", "time/step_ref_log_probs_values_reward")
    seconds = [row[key] for row in rows for key in passes if key in row]
    return max(seconds) > _SHORTEST_PASS if seconds else None


FRAMEWORK = Framework(
    name="roll",
    title="ROLL",
    aliases=("alibaba-roll",),
    how_to_dump="set rollout_dump_dir to an absolute path",
    row_keys=RowKeys(step=("step", "system/step", "system/global_step", "_step")),
    suffixes=("@sum", "@mean", "@max", "@min"),
    first_step=0,
    builds_on=("verl",),
    signature=(
        "actor/ppo_ratio_clipfrac",
        "actor/ppo_ratio_high_clipfrac",
        "actor/ppo_ratio_low_clipfrac",
        "actor/policykl",
        "actor/weighted_pg_loss",
        "actor/train_infer_ratio_token_mean",
        "actor/train_infer_ratio_geometric_mean",
        BACKWARD_STEPS,
        "actor_train/grad_norm",
        "critic/score_distribution/correct_samples_ratio",
        "group/all_correct_groups_ratio",
        "token/total_response_length/clip",
        "token/right_response_length/mean",
        "tokens/non_prompt_length/mean",
        "val_correct/<set>/mean",
        "mask/final_mask_sum_eq_0",
    ),
    version_key="roll_version",
    infer_settings=_infer_settings,
    defaults={
        "loss_agg_mode": "seq-mean-token-mean",
        _LEVEL: "token",
        _SEGMENT: "token",
        "kl_penalty": "kl",
        f"{WEIGHT}.weight_type": "token",
        "is_pure_opd": False,
        "use_opd": False,
        _HAS_SUMS: False,
    },
    meanings=(*_LOSS, *_MISMATCH, *_REWARD, *_GROUPS, *_LENGTH, *_TIME),
    knobs=KNOBS,
)
