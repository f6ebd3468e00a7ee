"""slime and miles, checked in the source of commits 624b824a (after v0.3.1) and 31f1ca96.

`rollout/*` are means over the responses of a rollout batch; `train/*` are means over the tokens of
a response, then over responses, or over all tokens with `--calculate-per-token-loss`.
`zero_std/count_<reward>` counts groups, with the reward rounded to one decimal. `rollout/step`
counts rollouts and `train/step` counts updates.
"""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import (
    RATIO_IS_ONE,
    Formula,
    KeyMeaning,
    by_estimator,
    without_metric,
)
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.slime.knobs import KNOBS

_TOKENS = "tokens of a response, then responses; all tokens with --calculate-per-token-loss"
_SAMPLES = "responses of the rollout batch"


def _groups(key: str, metric: str, formula: Formula = "ratio") -> KeyMeaning:
    """A count of groups for one reward, added to that of other rewards.

    A row has no count for a reward without such a group, so every row that may have counts starts
    at zero.
    """
    return KeyMeaning(key, metric, formula=formula, knob="prompts_per_batch", adds=True,
        unit="groups", over="groups", caveat="counted by reward, rounded to one decimal")


FRAMEWORK = Framework(
    name="slime",
    title="slime",
    how_to_dump="set --dump-details",
    how_to_dump_logprobs="set --dump-details",
    row_keys=RowKeys(step=("rollout/step", "train/step", "step", "_step")),
    first_step=0,
    update_counters=("step", "train/step"),
    update_prefixes=("train/",),
    signature=(
        "train/train_rollout_logprob_abs_diff",
        "train/pg_clipfrac",
        "train/ois",
        "train/tis_clipfrac",
        "train/lr-pg_0",
        "rollout/raw_reward",
        "rollout/zero_std/count_<reward>",
        "perf/tokens_per_gpu_per_sec",
    ),
    version_key="slime_version",
    defaults={"kl_loss_type": "k1", "advantage_estimator": "grpo"},
    meanings=(
        KeyMeaning("train/entropy_loss", "entropy/mean", over=_TOKENS, policies="learner",
            caveat="positive entropy"),
        KeyMeaning("train/pg_clipfrac", "clip/any_rate", over=_TOKENS,
            mask="only where the clip removes the gradient", policies="learner / old",
            when={"advantage_estimator": ("grpo", "gspo", "reinforce_plus_plus", "ppo")},
            structural_zero=RATIO_IS_ONE),
        KeyMeaning("train/pg_clipfrac", over=_TOKENS, when={"advantage_estimator": ("cispo",)},
            caveat="counts ratios outside the bounds for any sign of A; with cispo they still "
            "have a gradient"),
        KeyMeaning("train/ppo_kl", "kl/old_policy/k1", estimator="k1", over=_TOKENS,
            policies="old | learner", structural_zero=RATIO_IS_ONE),
        *by_estimator("train/kl_loss", "kl/reference/", "kl_loss_type",
            {"k1": ("k1",), "k2": ("k2",), "k3": ("k3", "low_var_kl")}, over=_TOKENS,
            policies="learner | reference", how_to_log="set --use-kl-loss and --kl-loss-coef 0"),
        KeyMeaning("train/train_rollout_logprob_abs_diff", "mismatch/logprob_diff_mean",
            over=_TOKENS, policies="old - sampler"),
        KeyMeaning("train/ois", "ratio/mean", over=_TOKENS, policies="learner / old"),
        KeyMeaning("train/tis", over=_TOKENS, policies="old / sampler",
            caveat="the raw ratio, before the cap"),
        KeyMeaning("train/tis_clipfrac", "correction/capped_rate", over=_TOKENS),
        KeyMeaning("train/tis_abs", over=_TOKENS),
        KeyMeaning("train/opsm_clipfrac", "correction/stale_rate", over="responses"),
        *without_metric("train/pg_loss"),
        KeyMeaning("train/loss", "optimizer/loss"),
        KeyMeaning("train/grad_norm", "optimizer/grad_norm"),
        KeyMeaning("train/lr-pg_0", "optimizer/learning_rate"),
        *without_metric("train/<path>"),
        KeyMeaning("rollout/response_len/mean", "length/mean", over=_SAMPLES),
        KeyMeaning("rollout/response_len/max", "length/max", over=_SAMPLES),
        KeyMeaning("rollout/response_len/min", "length/min", over=_SAMPLES),
        *without_metric("rollout/response_len/<statistic>"),
        KeyMeaning("rollout/response_lengths", over=_SAMPLES),
        KeyMeaning("rollout/truncated_ratio", "length/truncated_rate", over=_SAMPLES),
        KeyMeaning("rollout/raw_reward", "reward/mean", over=_SAMPLES),
        KeyMeaning("rollout/rewards", over=_SAMPLES,
            caveat="normalized rewards, near 0 by construction; rollout/raw_reward is the reward"),
        *(_groups(f"rollout/zero_std/count_{reward}", "groups/zero_variance_rate")
          for reward in ("<reward>", "0.0", "1.0", "0", "1")),
        *(_groups(f"rollout/zero_std/count_{reward}", "groups/all_incorrect_rate")
          for reward in ("0.0", "0")),
        *(_groups(f"rollout/zero_std/count_{reward}", "groups/all_correct_rate")
          for reward in ("1.0", "1")),
        *(_groups("rollout/repetition_frac", f"groups/{name}", formula="zero")
          for name in ("zero_variance_rate", "all_incorrect_rate", "all_correct_rate")),
        KeyMeaning("rollout/dynamic_filter/drop_<reason>", unit="groups", caveat="a count"),
        KeyMeaning("rollout/log_probs", policies="old",
            caveat="the mean log-probability of the sampled tokens, not an entropy"),
        KeyMeaning("rollout/rollout_log_probs", policies="sampler"),
        KeyMeaning("rollout/ref_log_probs", policies="reference"),
        KeyMeaning(("rollout/rollout_log_probs", "rollout/log_probs"), "mismatch/kl_k1",
            formula="difference", estimator="k1", over=_TOKENS, policies="sampler | old"),
        KeyMeaning("rollout/repetition_frac", "text/repetition_rate", over=_SAMPLES),
        *without_metric("rollout/<path>"),
        KeyMeaning("passrate/pass@<k>", "pass_at_k/<k>", over="prompts"),
        KeyMeaning("perf/step_time", "time/step", unit="s"),
        KeyMeaning("perf/rollout_time", "time/rollout", unit="s"),
        *without_metric("perf/<path>"),
        *without_metric("eval/<set>-truncated_ratio", "eval/<path>", "eval/step"),
        KeyMeaning("eval/<set>-pass@<k>", over="evaluation prompts",
            caveat="the best of k responses"),
        KeyMeaning("eval/<set>", "reward/heldout", over="evaluation responses",
            how_to_log="set --eval-prompt-data and --eval-interval"),
        KeyMeaning("train/opd_reverse_kl", "kl/teacher", over=_TOKENS,
            policies="learner | teacher"),
        KeyMeaning(("multi_turn/wo_obs_response_length/response_length_mean",
            "multi_turn/raw_response_length/response_length_mean"),
            "optimizer/response_in_loss_rate", formula="ratio", over=_SAMPLES,
            caveat="a ratio of two means"),
        KeyMeaning("multi_turn/multi_turn_metric/round_number_mean", "environment/turns_mean",
            over=_SAMPLES),
        *without_metric("multi_turn/<path>"),
    ),
    knobs=KNOBS,
)
