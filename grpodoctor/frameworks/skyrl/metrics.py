"""SkyRL, checked on its main branch of summer 2026."""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning
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
        KeyMeaning(key="policy/policy_entropy", metric="entropy/mean", over=_MICRO,
                policies="learner"),
        KeyMeaning(key="policy/loss_metrics/clip_ratio", metric="clip/any_rate", over=_MICRO,
                mask="only where the clip removes the gradient", policies="learner / old",
                when={_LOSS: ("regular", "dual_clip", "gspo", "clip_cov", "dppo")},
                structural_zero=RATIO_IS_ONE),
        KeyMeaning(key="policy/loss_metrics/clip_ratio", over=_MICRO, when={_LOSS: ("cispo",)},
                caveat="counts ratios outside the bounds for any sign of A; with cispo they still have "
                    "a gradient"),
        KeyMeaning(key="policy/loss_metrics/clip_ratio", when={_LOSS: ("sapo", "kl_cov")},
                caveat="always 0: this loss clips nothing"),
        KeyMeaning(key="policy/loss_metrics/is_ratio_mean", over=_MICRO, policies="old / sampler",
                caveat="the raw ratio, before any cap"),
        KeyMeaning(key="policy/loss_metrics/is_ratio_min",
                caveat="includes masked tokens, so it is 0 if there is padding"),
        KeyMeaning(key="policy/loss_metrics/is_ratio_std", caveat="includes masked tokens"),
        KeyMeaning(key="policy/loss_metrics/tis_token_clip_high_ratio",
                metric="correction/capped_rate", over=_MICRO),
        KeyMeaning(key="policy/loss_metrics/<path>"),
        KeyMeaning(key="policy/rollout_train_logprobs_abs_diff_mean",
                metric="mismatch/logprob_diff_mean", over="tokens", policies="old - sampler"),
        KeyMeaning(key="policy/rollout_train_logprobs_abs_diff_max",
                metric="mismatch/logprob_diff_max/worst_sequence", over="tokens",
                policies="old - sampler"),
        *(KeyMeaning(key="policy/policy_kl", metric=f"kl/reference/{kind}", estimator=kind,
                  over="tokens of a response, then responses", policies="learner | reference",
                  when={_KIND: (kind,)}, how_to_log=f"set {ALGORITHM}.use_kl_loss=true")
          for kind in ("k1", "k2", "k3")),
        KeyMeaning(key="policy/policy_loss"),
        KeyMeaning(key="policy/final_loss", metric="optimizer/loss"),
        KeyMeaning(key="policy/policy_lr", metric="optimizer/learning_rate"),
        KeyMeaning(key="policy/grad_norm", metric="optimizer/grad_norm"),
        KeyMeaning(key="policy/response_length", unit="positions",
                caveat="the width of the padded batch, not the length of responses"),
        KeyMeaning(key="policy/<path>"),
        KeyMeaning(key="reward/avg_raw_reward", metric="reward/mean", over="responses"),
        KeyMeaning(key="reward/avg_pass_at_<k>", metric="pass_at_k/<k>", over="prompts of the batch"),
        KeyMeaning(key="reward/num_zero_variance_filtered", unit="groups", caveat="a count"),
        KeyMeaning(key="reward/<path>"),
        KeyMeaning(key="loss/avg_kl", estimator="as configured"),
        KeyMeaning(key="loss/<path>"),
        KeyMeaning(key="generate/avg_num_tokens", metric="length/mean", over="responses"),
        KeyMeaning(key="generate/max_num_tokens", metric="length/max", over="responses"),
        KeyMeaning(key="generate/avg_tokens_non_zero_rewards", metric="length/correct",
                over="responses with a reward other than 0"),
        KeyMeaning(key="generate/avg_tokens_zero_rewards", metric="length/incorrect",
                over="responses with a reward of 0"),
        KeyMeaning(key="generate/<path>"),
        KeyMeaning(key="async/staleness_mean", metric="staleness/mean", unit="training steps"),
        KeyMeaning(key="async/staleness_max", metric="staleness/max", unit="training steps"),
        KeyMeaning(key="timing/step", metric="time/step", unit="s"),
        KeyMeaning(key="timing/generate", metric="time/rollout", unit="s"),
        KeyMeaning(key="timing/policy_train", metric="time/learn", unit="s"),
        KeyMeaning(key="eval/<source>/avg_score", metric="reward/heldout",
                over="evaluation responses",
                how_to_log="give data.val_data and set trainer.eval_interval above 0"),
        *(KeyMeaning(key=f"{family}/<path>") for family in ("async", "timing", "eval", "trainer",
                                                          "environment", "vllm",
                                                          "reward_dropped")),
    ),
    knobs=KNOBS,
)
