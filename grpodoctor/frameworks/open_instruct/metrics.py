"""open-instruct's grpo_fast and grpo, checked in the source of commit e6c3044a (after v0.3).

`batch/total_prompts` counts the prompts that are left after filtering, so the sampled prompts are
the sum of it and `batch/filtered_prompts`. Scores, lengths, stop rate and advantages are means over
the responses that are left. `global_step` and, in TensorBoard files of older versions, the step
itself count episodes; `training_step` is the training step. A rate is absent if the filter is off,
because nothing is counted then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, without_metric
from grpodoctor.frameworks.open_instruct.knobs import KNOBS
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_TOKENS = "tokens of the updates"
_SEEN = "sampled prompts, kept or filtered"
_KEPT = "responses that are left after filtering"
_FILTERED = "without prompts whose responses all score the same"
_COUNTS = ("batch/filtered_prompts", "batch/total_prompts")
"""The second count has only the prompts that are left, so the sampled prompts are the sum."""
_WITH_FILTER = {"filter_zero_std_samples": (True,)}
_RATE = "correct responses and filtered prompts are counted"
_COUNTED, _NOT_COUNTED = {_RATE: (True,)}, {_RATE: (False,)}
_NOT_REPLACED = {**_WITH_FILTER, "active_sampling": (False,)}
_LAST = "only the last micro-batch, since each response overwrites the one before"


def _infer_settings(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Infer whether the share of correct responses can be extended to the filtered prompts."""
    keys = {key for row in rows for key in row}
    return {_RATE: {"objective/verifiable_correct_rate", *_COUNTS} <= keys}


FRAMEWORK = Framework(
    name="open-instruct",
    title="open-instruct",
    how_to_dump="set save_traces=True",
    aliases=("olmo",),
    row_keys=RowKeys(step=("training_step", "step", "global_step", "_step")),
    signature=(
        "objective/kl2_avg",
        "val/sequence_lengths",
        "val/rho_weight",
        "batch/filtered_prompts",
        "debug/vllm_vs_local_logprob_diff_mean",
        "unsolved_batch_size_ratio",
    ),
    version_key="open_instruct_version",
    infer_settings=_infer_settings,
    defaults={"loss_fn": "dapo", _RATE: False, "active_sampling": False,
              "filter_zero_std_samples": True},
    meanings=(
        KeyMeaning("scores", "reward/mean", over=_KEPT, mask=_FILTERED, when=_NOT_COUNTED,
            caveat="by default a correct answer scores 10, not 1"),
        KeyMeaning("scores", "reward/kept_mean", over=_KEPT, mask=_FILTERED, when=_COUNTED,
            caveat="leaves out the prompts whose responses all score the same; the rate of correct "
            "responses includes them"),
        KeyMeaning("objective/verifiable_reward", over="responses"),
        KeyMeaning(("objective/verifiable_correct_rate", "batch/filtered_prompts_solved", *_COUNTS),
            "accuracy/train", formula="with-filtered", over="responses to all sampled prompts",
            when=_COUNTED),
        KeyMeaning("objective/verifiable_correct_rate", "accuracy/train", over=_KEPT,
            mask=_FILTERED, when=_NOT_COUNTED),
        KeyMeaning("policy/entropy_avg", "entropy/mean", over=_TOKENS, policies="learner",
            how_to_log="set record_entropy=True"),
        KeyMeaning("policy/clipfrac_avg", "clip/any_rate", over=_TOKENS, policies="learner / old",
            when={"loss_fn": ("dapo",)}),
        KeyMeaning("policy/clipfrac_avg", "clip/high_rate", over=_TOKENS, policies="learner / old",
            when={"loss_fn": ("cispo",)},
            caveat="tokens whose weight is capped; they still have a gradient"),
        KeyMeaning("val/ratio", "ratio/mean", over=_TOKENS, policies="learner / old"),
        KeyMeaning("val/ratio_var", caveat="the variance of micro-batch means, not of tokens"),
        KeyMeaning("objective/kl0_avg", "kl/reference/k1", estimator="k1", over=_TOKENS,
            policies="learner | reference"),
        KeyMeaning("objective/kl1_avg", "kl/reference/k2", estimator="k2", over=_TOKENS,
            policies="learner | reference",
            caveat="the k2 estimator, since the name counts from 0"),
        KeyMeaning("objective/kl2_avg", "kl/reference/k3", estimator="k3", over=_TOKENS,
            policies="learner | reference",
            caveat="the k3 estimator, since the name counts from 0"),
        KeyMeaning("objective/kl3_avg", policies="learner | reference",
            caveat="the ratio times k1, not k3"),
        KeyMeaning("objective/<source>_reward", "reward/component/<source>/mean",
            over="responses of that source"),
        # The PPO of TRL and of earlier versions: the total is the score minus the KL penalty.
        KeyMeaning("objective/scores", "reward/mean", over="responses of the batch"),
        *without_metric("objective/non_score_reward", "objective/rlhf_reward", "objective/<path>",
            "loss/policy_avg"),
        KeyMeaning("loss/kl_avg", caveat="multiplied by the coefficient"),
        KeyMeaning("loss/total_avg", "optimizer/loss"),
        KeyMeaning("val/rho_weight", "correction/weight_mean", over=_TOKENS,
            caveat="measured after the clamp"),
        KeyMeaning("val/rho_clipfrac", "correction/capped_rate", over=_TOKENS),
        KeyMeaning("val/rho_drop_frac", over=_TOKENS),
        KeyMeaning("debug/vllm_vs_local_logprob_diff_mean", "mismatch/logprob_diff_mean",
            over=_LAST, policies="old - sampler"),
        KeyMeaning("debug/vllm_vs_local_logprob_diff_max",
            "mismatch/logprob_diff_max/worst_sequence", over=_LAST, policies="old - sampler"),
        KeyMeaning("debug/vllm_local_reverse_kl", caveat="not an estimator of a divergence"),
        *without_metric("debug/<path>"),
        KeyMeaning("val/sequence_lengths", "length/mean", over=_KEPT, mask=_FILTERED,
            caveat="a training metric, despite its prefix"),
        KeyMeaning("val/sequence_lengths_max", "length/max", over=_KEPT, mask=_FILTERED),
        KeyMeaning("val/sequence_lengths_min", "length/min", over=_KEPT, mask=_FILTERED),
        KeyMeaning("val/sequence_lengths_solved", "length/correct", zero_is_absent=True,
            over="kept responses with the highest possible score", mask=_FILTERED),
        KeyMeaning("val/sequence_lengths_unsolved", "length/incorrect", zero_is_absent=True,
            over="kept responses with a score of 0", mask=_FILTERED),
        KeyMeaning("val/stop_rate", "length/truncated_rate", formula="one-minus", over=_KEPT,
            mask=_FILTERED),
        KeyMeaning("val/advantages_mean", "advantage/mean", over=_KEPT),
        KeyMeaning("val/advantages_max", "advantage/max", over=_KEPT),
        KeyMeaning("val/advantages_min", "advantage/min", over=_KEPT),
        KeyMeaning("real_batch_size_ratio", "groups/effective_rate", when=_NOT_REPLACED,
            over=_SEEN, caveat="the share of the batch that is left after filtering"),
        KeyMeaning("real_batch_size_ratio", when={"active_sampling": (True,)},
            caveat="always 1, because filtered prompts are replaced"),
        KeyMeaning("batch/percent_solved_mean", over="kept prompts"),
        KeyMeaning("batch/filtered_prompts_pct", "groups/zero_variance_rate", over=_SEEN,
            when=_WITH_FILTER),
        KeyMeaning(("batch/filtered_prompts", *_COUNTS), "groups/zero_variance_rate",
            formula="share", over=_SEEN, when=_WITH_FILTER),
        KeyMeaning(("batch/filtered_prompts_zero", *_COUNTS), "groups/all_incorrect_rate",
            formula="share", over=_SEEN, when=_WITH_FILTER),
        KeyMeaning(("batch/filtered_prompts_solved", *_COUNTS), "groups/all_correct_rate",
            formula="share", over=_SEEN, when=_WITH_FILTER),
        KeyMeaning("batch/<path>", caveat="a count of the prompts that are left after filtering"),
        KeyMeaning("tools/aggregate/avg_calls_per_rollout", "tools/calls_per_response", over=_KEPT),
        KeyMeaning("tools/aggregate/failure_rate", "tools/failure_rate", over="tool calls"),
        KeyMeaning("num_steps_off_policy", "staleness/mean", unit="training steps"),
        KeyMeaning("optim/grad_norm", "optimizer/grad_norm", over="updates"),
        KeyMeaning("lr", "optimizer/learning_rate"),
        KeyMeaning("time/total", "time/step", unit="s"),
        KeyMeaning("eval/scores", "reward/heldout", over="evaluation responses"),
        *without_metric("unsolved_batch_size_ratio", "packed_ratio",
            "episode", "model_step_min", "model_step_max", "model_step_mean", "val/<path>",
            "time/<path>", "eval/<path>", "learner_tokens_per_second_overall",
            "learner_tokens_per_second_step"),
    ),
    knobs=KNOBS,
)
