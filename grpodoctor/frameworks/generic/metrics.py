"""Key names that people use in their own training scripts.

Such a key does not state what it averages over, so each row assumes the usual meaning of the name.
The user's `--map` overrides it.
"""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, without_metric

_UNSTATED = "not stated"
_REWARD = ("reward", "rewards")
_ACCURACY = ("accuracy", "accuracies", "acc")
_TRAINED = ("", "train_", "training_")
_HELD_OUT = ("eval_", "val_", "test_", "validation_", "heldout_")


def _mean_names(quantities: tuple[str, ...], splits: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a batch's mean: with a word for mean before it, after it, or without one."""
    forms = (f"{split}{form}" for split in splits for name in quantities
             for form in (name, *(f"{word}_{name}" for word in ("mean", "avg", "average")),
                          *(f"{name}_{word}" for word in ("mean", "avg"))))
    return tuple(forms)


_SYNONYMS: dict[str, tuple[str, ...]] = {
    "reward/mean": (*_mean_names(_REWARD, _TRAINED), "reward/mean", "train/reward", "total_reward"),
    "reward/std": ("reward_std_batch",),
    "reward/heldout": _mean_names(_REWARD, _HELD_OUT),
    "accuracy/train": (*_mean_names(_ACCURACY, _TRAINED), "correct_rate", "solve_rate",
                       "train/accuracy"),
    "accuracy/heldout": (*_mean_names(_ACCURACY, _HELD_OUT), "eval/accuracy"),
    "entropy/mean": ("entropy", "policy_entropy", "mean_entropy", "entropy_mean", "avg_entropy",
                     "entropy_avg"),
    "length/mean": ("response_length", "mean_length", "avg_length", "completion_length",
                    "response_length_mean", "avg_gen_tokens", "mean_gen_tokens", "gen_length",
                    "length", "avg_response_len", "avg_response_length", "avg_len", "resp_len",
                    "response_len", "completion_len", "avg_completion_length"),
    "length/max": ("max_length", "response_length_max", "max_gen_tokens"),
    "length/truncated_rate": ("truncated_rate", "truncation_rate", "truncated", "clipped_ratio",
                              "frac_truncated"),
    "groups/zero_variance_rate": ("frac_reward_zero_std", "zero_std_frac", "zero_variance_rate",
                                  "frac_zero_variance"),
    "groups/reward_std": ("group_reward_std", "reward_std_group"),
    "groups/all_incorrect_rate": ("group_reward_all_zero_rate", "frac_all_wrong"),
    "groups/all_correct_rate": ("group_reward_all_one_rate", "frac_all_correct"),
    "clip/any_rate": ("clip_fraction", "clip_frac", "clipfrac", "pg_clipfrac", "clip_ratio"),
    "ratio/mean": ("ratio_mean", "importance_ratio", "ratio"),
    "ratio/max": ("ratio_max", "max_ratio"),
    "optimizer/loss": ("loss", "actor_loss", "grpo_loss", "total_loss", "policy_loss", "pg_loss",
                       "train_loss", "train/loss"),
    "optimizer/grad_norm": ("grad_norm", "gradient_norm", "gnorm", "train/grad_norm"),
    "optimizer/learning_rate": ("learning_rate", "lr", "train/learning_rate"),
    "time/step": ("step_time", "time_per_step", "sec_per_step"),
}
_REFERENCE = tuple(
    KeyMeaning(key, "kl/reference/k1", over=_UNSTATED, caveat="the estimator is not stated")
    for key in ("kl_ref", "ref_kl", "kl_reference", "reference_kl", "kl_to_ref")
)
_AMBIGUOUS = (
    KeyMeaning("reward_std", caveat="it may be the standard deviation of a group or of the batch"),
    KeyMeaning("kl", caveat="it may be to the reference, the old policy or the sampler"),
    KeyMeaning("kl_divergence", caveat="the other policy is not stated"),
    KeyMeaning("approx_kl", caveat="neither the other policy nor the sign is stated"),
    *without_metric("epoch"),
)

FRAMEWORK = Framework(
    name="generic",
    title="generic names",
    aliases=("plain", "custom"),
    prefixes=("train/", "line/"),
    meanings=(
        *(KeyMeaning(key, metric, over=_UNSTATED)
          for metric, keys in _SYNONYMS.items() for key in keys),
        *_REFERENCE,
        *_AMBIGUOUS,
    ),
)
