"""SkyRL, checked in the source of commit a9564572 (August 2026).

`generate/avg_num_tokens` is a mean over responses and includes tokens of the environment. The means
over responses with and without a reward are 0 if there are no such responses. `reward/num_zero_variance_filtered`
counts groups of `trainer.train_batch_size` prompts and is logged only with the filter. The loss
metrics are means over the tokens of a micro-batch, then over micro-batches. A row is one step.
"""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning, by_estimator, without_metric
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.skyrl.knobs import ALGORITHM, KNOBS

_LOSS = f"{ALGORITHM}.policy_loss_type"
_KIND = f"{ALGORITHM}.kl_estimator_type"
_MICRO = "tokens of a micro-batch, then micro-batches with equal weight"


FRAMEWORK = Framework(
    name="skyrl",
    title="SkyRL",
    row_keys=RowKeys(step=("step", "trainer/global_step", "_step")),
    signature=(
        "policy/policy_entropy",
        "policy/loss_metrics/clip_ratio",
        "generate/avg_num_tokens",
        "reward/avg_raw_reward",
        "policy/rollout_train_logprobs_abs_diff_mean",
        "loss/avg_final_rewards",
    ),
    version_key="skyrl_version",
    defaults={_LOSS: "regular", _KIND: "k3"},
    meanings=(
        KeyMeaning("policy/policy_entropy", "entropy/mean", over=_MICRO, policies="learner"),
        KeyMeaning("policy/loss_metrics/clip_ratio", "clip/any_rate", over=_MICRO,
            mask="only where the clip removes the gradient", policies="learner / old",
            when={_LOSS: ("regular", "dual_clip", "gspo", "clip_cov", "dppo")},
            structural_zero=RATIO_IS_ONE),
        KeyMeaning("policy/loss_metrics/clip_ratio", over=_MICRO, when={_LOSS: ("cispo",)},
            caveat="counts ratios outside the bounds for any sign of A; with cispo they still "
            "have a gradient"),
        KeyMeaning("policy/loss_metrics/clip_ratio", when={_LOSS: ("sapo", "kl_cov")},
            caveat="always 0: this loss clips nothing"),
        KeyMeaning("policy/loss_metrics/is_ratio_mean", "correction/weight_mean", over=_MICRO,
            policies="old / sampler", caveat="the raw ratio, before any cap"),
        KeyMeaning("policy/is_ratio_mean", "ratio/mean", over="tokens",
            policies="learner / sampler", caveat="logged by scripts that use SkyRL's engines"),
        KeyMeaning("policy/loss_metrics/is_ratio_min",
            caveat="includes masked tokens, so it is 0 if there is padding"),
        KeyMeaning("policy/loss_metrics/is_ratio_std", caveat="includes masked tokens"),
        KeyMeaning("policy/loss_metrics/tis_token_clip_high_ratio", "correction/capped_rate",
            over=_MICRO),
        *without_metric("policy/loss_metrics/<path>"),
        KeyMeaning("policy/rollout_train_logprobs_abs_diff_mean", "mismatch/logprob_diff_mean",
            over="tokens", policies="old - sampler"),
        KeyMeaning("policy/rollout_train_logprobs_abs_diff_max",
            "mismatch/logprob_diff_max/worst_sequence", over="tokens", policies="old - sampler"),
        *by_estimator("policy/policy_kl", "kl/reference/", _KIND,
            {kind: (kind,) for kind in ("k1", "k2", "k3")}, policies="learner | reference",
            over="tokens of a response, then responses",
            how_to_log=f"set {ALGORITHM}.use_kl_loss=true and {ALGORITHM}.kl_loss_coef=0"),
        *without_metric("policy/policy_loss"),
        KeyMeaning("policy/final_loss", "optimizer/loss"),
        KeyMeaning("policy/policy_lr", "optimizer/learning_rate"),
        KeyMeaning("policy/grad_norm", "optimizer/grad_norm"),
        KeyMeaning("policy/response_length", unit="positions",
            caveat="the width of the padded batch, not the length of responses"),
        *without_metric("policy/<path>"),
        KeyMeaning("reward/avg_raw_reward", "reward/mean", over="responses"),
        KeyMeaning("reward/avg_pass_at_<k>", "pass_at_k/<k>", over="prompts of the batch"),
        KeyMeaning("reward/num_zero_variance_filtered", "groups/zero_variance_rate",
            formula="ratio", knob="prompts_per_batch", unit="groups", over="groups",
            caveat="a count", how_to_log=f"set {ALGORITHM}.zero_variance_filter=true"),
        *without_metric("reward/<path>"),
        KeyMeaning("loss/avg_kl", estimator="as configured"),
        *without_metric("loss/<path>"),
        KeyMeaning("generate/avg_num_tokens", "length/mean", over="responses"),
        KeyMeaning("generate/max_num_tokens", "length/max", over="responses"),
        KeyMeaning("generate/min_num_tokens", "length/min", over="responses"),
        KeyMeaning("generate/avg_tokens_non_zero_rewards", "length/correct", zero_is_absent=True,
            over="responses with a reward above 0"),
        KeyMeaning("generate/avg_tokens_zero_rewards", "length/incorrect", zero_is_absent=True,
            over="responses with a reward of 0"),
        *without_metric("generate/<path>"),
        KeyMeaning("async/staleness_mean", "staleness/mean", unit="training steps"),
        KeyMeaning("async/staleness_max", "staleness/max", unit="training steps"),
        KeyMeaning("timing/step", "time/step", unit="s"),
        KeyMeaning("timing/generate", "time/rollout", unit="s"),
        KeyMeaning("timing/policy_train", "time/learn", unit="s"),
        KeyMeaning("eval/all/avg_score", over="all evaluation sets together"),
        KeyMeaning("eval/<source>/avg_score", "reward/heldout",
            over="evaluation responses",
            how_to_log="give data.val_data and set trainer.eval_interval above 0"),
        *without_metric("async/<path>", "timing/<path>", "eval/<path>", "trainer/<path>",
            "environment/<path>", "vllm/<path>", "reward_dropped/<path>"),
    ),
    knobs=KNOBS,
)
