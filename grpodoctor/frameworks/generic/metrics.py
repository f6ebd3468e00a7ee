"""Key names that people use in their own training scripts.

Such a key does not state what it averages over, so each row assumes the usual meaning of the name.
The user's `--map` overrides it.
"""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, without_metric

_UNSTATED = "not stated"
_REWARD = ("reward", "rewards")
_ACCURACY = ("accuracy", "accuracies", "acc", "answer_accuracy")
_SUCCESS = ("correct_rate", "solve_rate", "success_rate", "win_rate", "pass_rate")
_TRAINED = ("", "train_", "training_")
_HELD_OUT = tuple(
    f"{split}{separator}"
    for split in ("eval", "val", "test", "validation", "heldout", "evaluation", "dev")
    for separator in ("_", "/", "/<set>/")
)
"""`eval/math/accuracy` is the accuracy on one of several held-out sets."""


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
    "accuracy/train": (*_mean_names(_ACCURACY, _TRAINED), "train/accuracy",
                       *(f"{split}{name}" for split in _TRAINED for name in _SUCCESS)),
    "accuracy/heldout": (*_mean_names(_ACCURACY, _HELD_OUT),
                         *(f"{split}{name}" for split in _HELD_OUT
                           for name in (*_SUCCESS, "pass@1", "pass_at_1"))),
    "entropy/mean": (*_mean_names(("entropy", "token_entropy"), _TRAINED), "policy_entropy"),
    "length/mean": ("response_length", "mean_length", "avg_length", "completion_length",
                    "response_length_mean", "avg_gen_tokens", "mean_gen_tokens", "gen_length",
                    "length", "avg_response_len", "avg_response_length", "avg_len", "resp_len",
                    "response_len", "completion_len", "avg_completion_length",
                    "avg_response_token_length", "mean_response_length", "mean_completion_length",
                    "response_tokens", "completion_tokens", "avg_response_tokens",
                    "mean_response_tokens", "response_length_tokens", "response_length_avg",
                    "gen_len", "generation_length", "mean_response_len"),
    "length/max": ("max_length", "response_length_max", "max_gen_tokens"),
    "length/truncated_rate": ("truncated_rate", "truncation_rate", "truncated", "clipped_ratio",
                              "frac_truncated", "truncated_ratio", "truncated_fraction",
                              "fraction_truncated", "trunc_rate", "overlong_rate",
                              "length_clip_ratio"),
    "groups/zero_variance_rate": ("frac_reward_zero_std", "zero_std_frac", "zero_variance_rate",
                                  "frac_zero_variance", "zero_std_rate", "zero_std_ratio",
                                  "zero_variance_groups_rate", "degenerate_group_rate",
                                  "degenerate_groups_rate"),
    "groups/reward_std": ("group_reward_std", "reward_std_group"),
    "groups/all_incorrect_rate": ("group_reward_all_zero_rate", "frac_all_wrong"),
    "groups/all_correct_rate": ("group_reward_all_one_rate", "frac_all_correct"),
    "clip/any_rate": ("clip_fraction", "clip_frac", "clipfrac", "pg_clipfrac", "clip_ratio",
                      "fraction_clipped", "frac_clipped", "clipped_fraction"),
    "ratio/mean": ("ratio_mean", "importance_ratio", "ratio"),
    "ratio/max": ("ratio_max", "max_ratio"),
    "optimizer/loss": ("loss", "actor_loss", "grpo_loss", "total_loss", "policy_loss", "pg_loss",
                       "train_loss", "train/loss"),
    "optimizer/grad_norm": ("grad_norm", "gradient_norm", "gnorm", "train/grad_norm",
                            "grad_l2_norm", "global_grad_norm"),
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
