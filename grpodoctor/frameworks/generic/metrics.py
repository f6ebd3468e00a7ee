"""Key names that people use in their own training scripts.

Such a key does not state what it averages over, so each row assumes the usual meaning of the name.
The user's `--map` overrides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, SharedRows, without_metric
from grpodoctor.vocabulary.metrics import METRICS

_UNSTATED = "not stated"
_MEAN_WORDS = ("mean", "avg")
_SHARE_WORDS = ("rate", "ratio", "frac", "fraction", "share")
_TRAINED = ("", "train_", "training_", "rollout_", "batch_")
_HELD_OUT = tuple(
    f"{split}{separator}"
    for split in ("eval", "val", "test", "validation", "heldout", "held_out", "evaluation", "dev")
    for separator in ("_", "/"))
_HELD_OUT_SETS = (*_HELD_OUT, "eval/<set>/")
"""`eval/math/accuracy` is the accuracy on one of several held-out sets."""
_REWARDS = ("reward", "rewards", "score", "scores", "raw_reward", "task_reward", "outcome_reward",
            "total_reward", "episode_reward", "episode_return", "ep_rew", "ep_reward", "ep_return",
            "terminal_reward", "final_reward", "return")
_PROXIES = ("proxy", "proxy_reward", "proxy_score")
_GOLDS = ("gold", "gold_reward", "gold_score", "true_reward")
"""What is optimized, and what it stands for, in the terms of Gao et al. 2022: the gold reward takes
no part in training, as a held-out measure."""
_ACCURACIES = ("accuracy", "accuracies", "acc", "answer_accuracy", "correct_rate", "solve_rate",
               "success_rate", "win_rate", "winrate", "pass_rate", "exact_match", "frac_correct",
               "fraction_correct", "correct_fraction", "correct_ratio", "solved_rate",
               "task_success", "pass_at_1", "pass1", "success", "solved", "correct", "correct_answer_rate",
               "answer_correct_rate", "final_answer_accuracy", "pass@1")
_RESPONSES = ("response", "responses", "resp", "completion", "completions", "generation", "gen",
              "output", "answer", "rollout")
_LENGTHS = ("length", "len", "tokens", "token_length", "length_tokens", "token_count")
_COMPONENTS = ("format", "strict_format", "soft_format", "correctness", "accuracy", "answer",
               "length", "syntax", "code", "tool", "style", "language", "reasoning", "tag", "xml",
               "int", "brevity", "efficiency", "cosine", "repetition", "safety", "helpfulness",
               "quality", "execution", "compile", "unit_test", "process", "judge", "diversity")


def _mean_names(quantities: Sequence[str], splits: Sequence[str] = ("",)) -> tuple[str, ...]:
    """Names of a batch's mean: with a word for mean before it, after it, or without one."""
    forms = (f"{split}{form}" for split in splits for name in quantities
             for form in (name, *(f"{word}_{name}" for word in _MEAN_WORDS),
                          *(f"{name}{separator}{word}" for word in _MEAN_WORDS
                            for separator in ("_", "/"))))
    return tuple(dict.fromkeys(forms))


def _share_names(*conditions: str) -> tuple[str, ...]:
    """Names of the share of responses or groups that meet a condition."""
    forms = (form for name in conditions
             for form in (*(f"{name}_{word}" for word in _SHARE_WORDS),
                          *(f"{word}_{name}" for word in ("frac", "fraction", "pct_of"))))
    return tuple(dict.fromkeys(forms))


_EPISODES = tuple(f"{branch}/{name}" for branch in ("episode", "episodes", "game")
                  for name in _mean_names(("length", "len", "steps", "num_steps", "turns")))
"""Keys below `episode/`: an environment counts its turns, not tokens."""

_RESPONSE_LENGTHS = tuple(f"{noun}_{length}" for noun in _RESPONSES for length in _LENGTHS)
_TOTALS = {"response_tokens", "completion_tokens", "output_tokens", "gen_tokens", "rollout_tokens",
           "responses_tokens", "completions_tokens", "generation_tokens", "resp_tokens",
           "answer_tokens"}
"""Names of a sum over the batch, unless a word for mean comes with them."""

_SYNONYMS: dict[str, tuple[str, ...]] = {
    "reward/mean": ("reward/mean", *_mean_names(_REWARDS, _TRAINED), "train/reward",
                    "average_reward", "average_score", *_mean_names(_PROXIES)),
    "reward/std": ("reward_std_batch", "batch_reward_std"),
    "reward/max": ("reward_max", "max_reward", "rewards_max", "reward/max", "rewards/max"),
    "reward/min": ("reward_min", "min_reward", "rewards_min", "reward/min", "rewards/min"),
    "reward/heldout": (*_mean_names(_REWARDS, _HELD_OUT_SETS), *_mean_names(_GOLDS)),
    "accuracy/train": (*_mean_names(_ACCURACIES, _TRAINED), "train/accuracy"),
    "accuracy/heldout": _mean_names((*_ACCURACIES, "exact", "em"), _HELD_OUT_SETS),
    "entropy/mean": _mean_names(("entropy", "ent", "token_entropy", "policy_entropy", "actor_entropy",
                                 "response_entropy", "per_token_entropy", "generation_entropy")),
    "length/mean": tuple(name for name in (
        "length", "len", "mean_length", "avg_length", "average_length", "average_response_length",
        "avg_len", "mean_len", "tokens_per_response",
        "tokens_per_completion", "tokens_per_sample", "num_tokens_per_response",
        *_mean_names(_RESPONSE_LENGTHS, ("", "train_"))) if name not in _TOTALS),
    "length/max": ("max_length", *(f"{name}_max" for name in _RESPONSE_LENGTHS),
                   *(f"{name}/max" for name in _RESPONSE_LENGTHS),
                   *(f"max_{name}" for name in _RESPONSE_LENGTHS)),
    "length/min": ("min_length", *(f"{name}_min" for name in _RESPONSE_LENGTHS),
                   *(f"{name}/min" for name in _RESPONSE_LENGTHS),
                   *(f"min_{name}" for name in _RESPONSE_LENGTHS)),
    "length/truncated_rate": (
        "truncated", "clipped_ratio", *_share_names("truncated", "truncation", "overlong", "no_eos",
        "missing_eos", "unfinished", "cutoff", "max_length", "max_len", "length_limit",
        "hit_max_length", "max_length_hit", "length_clip", "cap_hit", "length_cap")),
    "groups/zero_variance_rate": ("zvf", *_share_names(
        "reward_zero_std", "zero_std", "zero_variance", "zero_var", "no_variance", "zero_advantage",
        "zero_adv", "degenerate", "degenerate_groups", "degenerate_group", "uniform_groups",
        "uniform_group", "constant_groups", "constant_group", "constant_reward_groups",
        "zero_gradient_groups", "zero_gradient_group", "dead_groups", "dead_group", "skipped_groups", "skipped_group",
        "no_signal", "flat_groups", "flat_group", "zero_std_groups")),
    "groups/effective_rate": _share_names(
        "effective_groups", "effective_group", "informative_groups", "informative_group", "mixed",
        "mixed_groups", "mixed_group", "useful_groups", "useful_group", "nonzero_std",
        "nonzero_advantage", "nonzero_adv"),
    "groups/reward_std": ("group_reward_std", "reward_std_group", "reward_std_within_group",
                          "within_group_std", "within_group_reward_std", "mean_group_std"),
    "groups/all_incorrect_rate": _share_names(
        "group_reward_all_zero", "all_wrong", "all_incorrect", "all_zero", "all_fail",
        "all_failed", "none_correct"),
    "groups/all_correct_rate": _share_names(
        "group_reward_all_one", "all_correct", "all_right", "all_pass", "all_passed", "all_solved"),
    "advantage/mean": _mean_names(("advantage", "advantages", "adv"))[1:],
    "advantage/max": ("advantages/max", "advantage_max", "advantages_max", "adv_max",
                      "max_advantage", "max_adv"),
    "advantage/min": ("advantages/min", "advantage_min", "advantages_min", "adv_min",
                      "min_advantage", "min_adv"),
    "clip/any_rate": (*_share_names("clip", "clipped", "pg_clip", "policy_clip"),
                      "clipfrac", "pg_clipfrac", "clip_rate", "ppo_ratio_clipfrac",
                      *_mean_names(("clip_fraction", "clip_frac"))[1:]),
    "clip/low_rate": ("clip_low", "low_clip_frac", "clip_frac_low", "clip_fraction_low",
                      "clipfrac_low", "clip_ratio_low", "clip_low_frac", "lower_clip_frac",
                      "clip_frac_lower", "clip_ratio_lower", "pg_clipfrac_lower",
                      "ppo_ratio_low_clipfrac"),
    "clip/high_rate": ("clip_high", "high_clip_frac", "clip_frac_high", "clip_fraction_high",
                       "clipfrac_high", "clip_ratio_high", "clip_high_frac", "upper_clip_frac",
                       "clip_frac_upper", "clip_ratio_upper", "pg_clipfrac_higher",
                       "ppo_ratio_high_clipfrac"),
    "ratio/mean": (*_mean_names(("ratio",))[1:],
                   *_mean_names(("importance_ratio", "policy_ratio", "prob_ratio"))),
    "ratio/max": ("ratio_max", "max_ratio", "importance_ratio_max", "policy_ratio_max"),
    "mismatch/logprob_diff_mean": _mean_names(
        ("logprob_abs_diff", "abs_logprob_diff", "logp_abs_diff", "abs_logp_diff",
         "rollout_logprob_abs_diff", "train_rollout_logprob_abs_diff", "sampler_logprob_abs_diff",
         "mismatch/mismatch_logprob_abs_diff")),
    "correction/weight_mean": (*_mean_names(("is_weight", "tis_weight", "is_ratio")),
                               "mismatch/rollout_is_mean"),
    "correction/masked_rate": _share_names("is_masked", "rejected_tokens", "masked_tokens"),
    "staleness/mean": _mean_names(("staleness", "policy_lag", "version_lag", "off_policy_steps")),
    "staleness/max": ("max_staleness", "staleness_max", "max_policy_lag", "policy_lag_max"),
    "tools/calls_per_response": (
        "tool_calls_per_episode", "tool_calls_per_response",
        *_mean_names(("tool_calls", "num_tool_calls", "tool_call_count"))[1:]),
    "tools/failure_rate": _share_names("tool_failure", "tool_error", "tool_fail",
                                       "tool_call_failure", "tool_call_error", "failed_tool_calls"),
    "environment/invalid_action_rate": _share_names(
        "invalid_action", "invalid_actions", "illegal_action", "illegal_move", "invalid_move",
        "parse_error", "parse_failure", "parse_fail"),
    "environment/turns_mean": _mean_names(
        ("turns", "num_turns", "n_turns", "episode_length", "episode_len", "episode_steps",
         "turns_per_episode", "steps_per_episode", "ep_len")) + _EPISODES,
    "rollouts/aborted_rate": _share_names("aborted", "abort", "timeout", "timed_out"),
    "rollouts/error_rate": _share_names("rollout_error", "env_error", "environment_error",
                                        "reward_error", "exception"),
    "text/repetition_rate": _share_names("repetition", "repeated", "repetitive"),
    "critic/loss": ("value_loss", "vf_loss", "critic_loss"),
    "critic/explained_variance": ("explained_variance", "explained_var"),
    "experts/auxiliary_loss": ("aux_loss", "router_aux_loss", "load_balancing_loss"),
    "kl/teacher": ("teacher_kl", "kl_teacher", "distill_kl", "kl_to_teacher", "reverse_kl"),
    "optimizer/loss": ("loss", "actor_loss", "act_loss", "grpo_loss", "total_loss", "policy_loss",
                       "pg_loss", "train_loss", "train/loss", "loss_mean", "mean_loss", "avg_loss",
                       "loss:sum", "loss:mean"),
    "optimizer/grad_norm": _mean_names(
        ("grad_norm", "gradient_norm", "gnorm", "train/grad_norm", "global_grad_norm",
         "total_grad_norm", "policy_grad_norm", "grad_l2")),
    "optimizer/learning_rate": ("learning_rate", "lr", "train/learning_rate", "actor_lr",
                                "policy_lr", "current_lr"),
    "optimizer/skipped_rate": _share_names("skipped_updates", "skipped_update"),
    "time/step": ("step_time", "time_per_step", "sec_per_step", "step_time_s", "step_seconds",
                  "step_duration", "seconds_per_step", "iter_time", "iteration_time"),
    "time/rollout": ("rollout_time", "generation_time", "gen_time", "sampling_time",
                     "rollout_seconds", "generation_seconds", "sample_time"),
    "time/learn": ("learn_time", "update_time", "optim_time", "train_step_time"),
}
"""Names by metric; the first of several in one log counts."""

_INVERSES: dict[str, tuple[str, ...]] = {
    "length/truncated_rate": (
        "format_eos", "has_eos", "ended_with_eos", "reached_eos",
        *_share_names("eos", "finished", "terminated", "natural_termination")),
    "environment/invalid_action_rate": _share_names(
        "valid_action", "valid_actions", "legal_action", "legal_move", "valid_move",
        "parse_success"),
    "tools/failure_rate": _share_names("tool_success", "tool_call_success"),
}
"""Names of one minus the metric."""

_KL = {
    "kl/reference/k1": _mean_names(("kl_ref", "ref_kl", "kl_reference", "reference_kl", "kl_to_ref",
                                    "kl_to_reference", "kl_vs_ref", "kl_from_ref")),
    "kl/old_policy/k1": _mean_names(("kl_old", "old_kl", "kl_to_old", "kl_old_policy")),
    "mismatch/kl_k1": _mean_names(("mismatch_kl", "kl_mismatch", "sampler_kl", "kl_sampler",
                                   "rollout_kl", "train_rollout_kl", "kl_rollout_train",
                                   "mismatch/mismatch_kl")),
    "mismatch/kl_k3": ("mismatch/mismatch_k3_kl",),
}
_CANONICAL = tuple(
    metric.name for metric in METRICS
    if "<" not in metric.name and metric.name not in ("reward/std", "environment/turns_mean")
)
"""Scripts that sort their keys into families often use the same names as this project."""
_AMBIGUOUS = (
    KeyMeaning("reward_std", caveat="it may be the standard deviation of a group or of the batch"),
    KeyMeaning("kl", caveat="it may be to the reference, the old policy or the sampler"),
    KeyMeaning("kl_divergence", caveat="the other policy is not stated"),
    KeyMeaning("approx_kl", caveat="neither the other policy nor the sign is stated"),
    KeyMeaning("skipped_rate", caveat="it may count groups, prompts or updates"),
    KeyMeaning("reward/std", caveat="it may be of a group or of the batch"),
    KeyMeaning("ratio", caveat="it may be the importance ratio or the ratio of two counts"),
    *without_metric("epoch", "reward/median"),
)
_RLLM = (
    KeyMeaning("reward/default/mean", "reward/mean", over="trajectories"),
    KeyMeaning("reward/default/max", "reward/max", over="trajectories"),
    KeyMeaning("reward/default/min", "reward/min", over="trajectories"),
    *without_metric("reward/default/std", "advantage/<role>/std", "batch/<role>/informative",
        "batch/<role>/total", "batch/<role>/group_reward_mean/<quantile>",
        "batch/<role>/group_reward_std/<quantile>", "batch/num_tasks", "batch/groups_<count>"),
    KeyMeaning("advantage/default/mean", "advantage/mean", over="trajectories"),
    KeyMeaning("advantage/default/max", "advantage/max", over="trajectories"),
    KeyMeaning("advantage/default/min", "advantage/min", over="trajectories"),
    KeyMeaning("advantage/default/fraction_zero", "advantage/zero_rate", over="trajectories"),
    KeyMeaning("batch/default/fractions/too_hard", "groups/all_incorrect_rate",
        over="groups of two and more"),
    KeyMeaning("batch/default/fractions/too_easy", "groups/all_correct_rate",
        over="groups of two and more"),
    KeyMeaning(("batch/default/fractions/too_hard", "batch/default/fractions/too_easy"),
        "groups/zero_variance_rate", formula="sum", over="groups of two and more"),
    KeyMeaning("batch/default/fractions/effective", "groups/effective_rate",
        over="groups of two and more"),
    KeyMeaning("batch/termination_reason/max_response_length_exceeded", "length/truncated_rate",
        over="episodes"),
    KeyMeaning("batch/termination_reason/error", "rollouts/error_rate", over="episodes"),
    *without_metric("batch/termination_reason/<name>"),
    KeyMeaning("batch/steps_per_traj/mean", "environment/turns_mean", over="trajectories"),
    KeyMeaning("kl_sample_train_v1", "mismatch/kl_k1", over="loss tokens", estimator="k1",
        policies="sampler | learner"),
    *without_metric("kl_sample_train_v2"),
)
"""rLLM, checked in the source of commit 9beb6e0f (August 2026). `default` is the role of a run with
one agent. It adds these keys to those of verl, or to those of its other trainers."""
_STRUCTURED = (
    *(KeyMeaning(form.replace("*", name), f"reward/component/{name}/mean", over=_UNSTATED)
      for name in _COMPONENTS for form in ("*_reward", "reward_*", "mean_*_reward",
                                           "*_reward_mean", "avg_*_reward")),
    *(KeyMeaning(f"reward/{name}", f"reward/component/{name}/mean", over=_UNSTATED)
      for name in _COMPONENTS),
    *(KeyMeaning(key, "reward/component/format/mean", over=_UNSTATED)
      for key in ("fmt", "fmt_rate", "fmt_reward", "format_rate", "format_mean", "format_ok_rate",
                  "valid_format_rate", "format_valid_rate", "format_accuracy", "format_acc")),
    *(KeyMeaning(key, "reward/component/answer/mean", over=_UNSTATED,
                 caveat="it may count answers that are given instead of right ones")
      for key in ("answer_rate", "answer_mean")),
    KeyMeaning(("batch/solve_none", "batch/solve_none", "batch/solve_all", "batch/solve_partial"),
               "groups/all_incorrect_rate", formula="share", over="counts of prompts"),
    KeyMeaning(("batch/solve_all", "batch/solve_all", "batch/solve_none", "batch/solve_partial"),
               "groups/all_correct_rate", formula="share", over="counts of prompts"),
    *_RLLM,
    KeyMeaning(("groups_skipped", "groups_total"), "groups/zero_variance_rate", formula="ratio",
               over="groups that a script leaves out for equal rewards"),
    KeyMeaning("reward/correctness_mean", "reward/component/correctness/mean", over=_UNSTATED),
    *without_metric(*(f"reward/correctness_{part}" for part in ("std", "min", "max", "median"))),
    KeyMeaning("reward/correctness_<kind>", "reward/component/correctness_<kind>/mean",
               over=_UNSTATED),
    KeyMeaning("rewards/<name>", "reward/component/<name>/mean", over=_UNSTATED),
    KeyMeaning("rewards/<name>_std", "reward/component/<name>/std", over=_UNSTATED),
    KeyMeaning("rewards/<name>/mean", "reward/component/<name>/mean", over=_UNSTATED),
    KeyMeaning("reward_components/<name>", "reward/component/<name>/mean", over=_UNSTATED),
    *(KeyMeaning(key, "pass_at_k/<k>", over=_UNSTATED)
      for key in ("eval_pass@<k>", "val_pass@<k>", "test_pass@<k>", "eval/pass@<k>",
                  "eval_pass_at_<k>", "val_pass_at_<k>", "pass@<k>", "train_pass@<k>",
                  "training_pass@<k>", "pass_at_<k>", "train_pass_at_<k>")),
    *(KeyMeaning(f"{split}{name}", "reward/heldout", over=_UNSTATED)
      for name in ("ndcg@<k>", "recall@<k>", "precision@<k>", "hit@<k>", "mrr", "f1", "bleu",
                   "rouge_l") for split in _HELD_OUT),
)

_TOKENS_OF_BATCH = "tokens of the batch"
_TRL_PPO = (
    KeyMeaning("objective/scores", "reward/mean", over="responses of the batch"),
    *without_metric("objective/rlhf_reward", "objective/non_score_reward", "eps", "val/ratio_var",
                    "val/clipfrac_avg"),
    KeyMeaning("val/num_eos_tokens", "length/end_tokens", over="responses of one process",
               caveat="a response goes on after its end token, so it may contain several"),
    KeyMeaning("objective/kl", caveat="summed over the tokens of a response"),
    KeyMeaning("objective/entropy", caveat="summed over the tokens of a response"),
    KeyMeaning("policy/entropy_avg", "entropy/mean", over=_TOKENS_OF_BATCH),
    KeyMeaning("policy/clipfrac_avg", "clip/any_rate", over=_TOKENS_OF_BATCH),
    KeyMeaning("policy/approxkl_avg", "kl/old_policy/k2", estimator="k2", over=_TOKENS_OF_BATCH),
    KeyMeaning("val/ratio", "ratio/mean", over=_TOKENS_OF_BATCH),
    KeyMeaning("loss/policy_avg", "optimizer/loss"),
    KeyMeaning("loss/value_avg", "critic/loss"),
)
"""TRL's PPO and RLOO trainers. The total reward is the score minus the penalty on the KL; the score
is what the task pays. Settings have other names there than in the GRPO trainer."""

_PLURALS = {"reward": "rewards", "score": "scores", "return": "returns", "loss": "losses",
            "entropy": "entropies", "accuracy": "accuracies", "length": "lengths", "norm": "norms",
            "kl": "kls", "ratio": "ratios", "rate": "rates", "fraction": "fractions"}
"""Last words of keys. A script that writes one list per key at its end names the list:
`episode_rewards`, `policy_losses`."""


def _plural(key: str) -> str:
    """A key with its last word in the plural; empty if it has none."""
    start = max(key.rfind("_"), key.rfind("/")) + 1
    plural = _PLURALS.get(key[start:], "")
    return key[:start] + plural if plural else ""


def _rows() -> dict[str, KeyMeaning]:
    """All rows by their first keys: the first meaning of a key counts."""
    rows = _rows_of_names()
    plurals = {
        plural: row
        for key, row in rows.items()
        if len(row.keys) == 1 and (plural := _plural(key)) and plural not in rows
    }
    return {**rows, **plurals}


def _rows_of_names() -> dict[str, KeyMeaning]:
    """All rows but those of plurals, by their first keys; names of one metric share a row."""
    rows: dict[str, KeyMeaning] = {}
    _add_rows(rows, _AMBIGUOUS)
    for metric, keys in _SYNONYMS.items():
        _add_names(rows, keys, KeyMeaning(keys[0], metric, over=_UNSTATED))
    for metric, keys in _INVERSES.items():
        _add_names(rows, keys, KeyMeaning(keys[0], metric, formula="one-minus", over=_UNSTATED))
    for metric, keys in _KL.items():
        _add_names(rows, keys, KeyMeaning(keys[0], metric, over=_UNSTATED,
                                          caveat="the estimator is not stated"))
    _add_rows(rows, _STRUCTURED)
    _add_rows(rows, _TRL_PPO)
    _add_rows(rows, (KeyMeaning(name, name, over=_UNSTATED) for name in _CANONICAL))
    return rows


def _add_rows(rows: dict[str, KeyMeaning], added: Iterable[KeyMeaning]) -> None:
    for row in added:
        rows.setdefault(row.keys[0], row)


def _add_names(rows: dict[str, KeyMeaning], keys: Iterable[str], shared: KeyMeaning) -> None:
    for key in keys:
        rows.setdefault(key, shared)


FRAMEWORK = Framework(
    name="generic",
    title="generic names",
    aliases=("plain", "custom"),
    prefixes=("train/", "line/"),
    first_synonym_counts=True,
    meanings=SharedRows(_rows()),
)
