"""SkyRL, checked on its main branch of summer 2026."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_ALGORITHM = "trainer.algorithm"
_LOSS = f"{_ALGORITHM}.policy_loss_type"
_KIND = f"{_ALGORITHM}.kl_estimator_type"
_MICRO = "tokens of a micro-batch, then a plain mean of micro-batches"
_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)
_LOSSES: Mapping[Setting, Setting] = {
    **{kind: kind for kind in ("gspo", "cispo", "sapo", "clip_cov", "kl_cov")},
    "regular": "ppo_clip", "dual_clip": "ppo_clip", "dppo": "dppo_binary_tv",
}


def _updates(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    whole = others.get("trainer.train_batch_size")
    if not isinstance(setting, int) or not isinstance(whole, int) or setting < 1:
        return None
    return max(1, whole // setting)


def _kl(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    return setting if others.get(f"{_ALGORITHM}.use_kl_loss", True) is True else 0.0


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
        Meaning(key="policy/policy_entropy", metric="entropy/mean", over=_MICRO,
                policies="learner"),
        Meaning(key="policy/loss_metrics/clip_ratio", metric="clip/any_rate", over=_MICRO,
                mask="only where the clip removes the gradient", policies="learner / old",
                when={_LOSS: ("regular", "dual_clip", "gspo", "clip_cov", "dppo")},
                structural_zero=_ONE_UPDATE),
        Meaning(key="policy/loss_metrics/clip_ratio", over=_MICRO, when={_LOSS: ("cispo",)},
                lie="ratios outside the band whatever the sign of A; under cispo they keep a "
                    "gradient"),
        Meaning(key="policy/loss_metrics/clip_ratio", when={_LOSS: ("sapo", "kl_cov")},
                lie="always 0: this loss clips nothing"),
        Meaning(key="policy/loss_metrics/is_ratio_mean", over=_MICRO, policies="old / sampler",
                lie="raw, before any cap"),
        Meaning(key="policy/loss_metrics/is_ratio_min",
                lie="taken over the mask too: 0 wherever there is padding"),
        Meaning(key="policy/loss_metrics/is_ratio_std", lie="taken over the mask too"),
        Meaning(key="policy/loss_metrics/tis_token_clip_high_ratio",
                metric="correction/capped_rate", over=_MICRO),
        Meaning(key="policy/loss_metrics/<path>"),
        Meaning(key="policy/rollout_train_logprobs_abs_diff_mean",
                metric="mismatch/logprob_diff_mean", over="tokens", policies="old - sampler"),
        Meaning(key="policy/rollout_train_logprobs_abs_diff_max",
                metric="mismatch/logprob_diff_max/worst_sequence", over="tokens",
                policies="old - sampler"),
        *(Meaning(key="policy/policy_kl", metric=f"kl/reference/{kind}", estimator=kind,
                  over="tokens of a response, then responses", policies="learner | reference",
                  when={_KIND: (kind,)}, how=f"set {_ALGORITHM}.use_kl_loss=true")
          for kind in ("k1", "k2", "k3")),
        Meaning(key="policy/policy_loss"),
        Meaning(key="policy/final_loss", metric="optimizer/loss"),
        Meaning(key="policy/policy_lr", metric="optimizer/learning_rate"),
        Meaning(key="policy/grad_norm", metric="optimizer/grad_norm"),
        Meaning(key="policy/response_length", unit="positions",
                lie="the width of the padded batch, no length of responses"),
        Meaning(key="policy/<path>"),
        Meaning(key="reward/avg_raw_reward", metric="reward/mean", over="responses"),
        Meaning(key="reward/avg_pass_at_<k>", metric="pass_at_k/<k>", over="prompts of the batch"),
        Meaning(key="reward/num_zero_variance_filtered", unit="groups", lie="a count"),
        Meaning(key="reward/<path>"),
        Meaning(key="loss/avg_kl", estimator="as configured"),
        Meaning(key="loss/<path>"),
        Meaning(key="generate/avg_num_tokens", metric="length/mean", over="responses"),
        Meaning(key="generate/max_num_tokens", metric="length/max", over="responses"),
        Meaning(key="generate/avg_tokens_non_zero_rewards", metric="length/correct",
                over="responses with a reward other than 0"),
        Meaning(key="generate/avg_tokens_zero_rewards", metric="length/incorrect",
                over="responses with a reward of 0"),
        Meaning(key="generate/<path>"),
        Meaning(key="async/staleness_mean", metric="staleness/mean", unit="training steps"),
        Meaning(key="async/staleness_max", metric="staleness/max", unit="training steps"),
        Meaning(key="timing/step", metric="time/step", unit="s"),
        Meaning(key="timing/generate", metric="time/rollout", unit="s"),
        Meaning(key="timing/policy_train", metric="time/learn", unit="s"),
        Meaning(key="eval/<source>/avg_score", metric="reward/heldout",
                over="evaluation responses",
                how="give data.val_data and set trainer.eval_interval above 0"),
        *(Meaning(key=f"{family}/<path>") for family in ("async", "timing", "eval", "trainer",
                                                          "environment", "vllm",
                                                          "reward_dropped")),
    ),
    knobs=(
        KnobMeaning(key=_LOSS, knob="loss", of=_LOSSES, default="regular"),
        KnobMeaning(key=f"{_ALGORITHM}.loss_reduction", knob="aggregation",
                    of={"token_mean": "token-mean", "sequence_mean": "sequence-mean",
                        "prompt_mean": "prompt-mean"}),
        KnobMeaning(key=f"{_ALGORITHM}.eps_clip_low", knob="clip_low"),
        KnobMeaning(key=f"{_ALGORITHM}.eps_clip_high", knob="clip_high"),
        KnobMeaning(key=f"{_ALGORITHM}.grpo_norm_by_std", knob="advantage",
                    of={True: "group", False: "centred"}),
        KnobMeaning(key=f"{_ALGORITHM}.kl_loss_coef", knob="kl_coefficient", of=_kl),
        KnobMeaning(key=f"{_ALGORITHM}.off_policy_correction.tis_ratio_type", knob="correction",
                    of={"token": "tis_token", "sequence": "tis_sequence"}),
        KnobMeaning(key="generator.apply_overlong_filtering", knob="overlong",
                    of={True: "mask", False: "none"}),
        KnobMeaning(key="generator.n_samples_per_prompt", knob="group_size"),
        KnobMeaning(key="trainer.train_batch_size", knob="prompts_per_batch"),
        KnobMeaning(key="trainer.policy_mini_batch_size", knob="updates_per_batch", of=_updates),
        KnobMeaning(key="trainer.policy.optimizer_config.lr", knob="learning_rate"),
        KnobMeaning(key="generator.sampling_params.max_generate_length", knob="max_length"),
        KnobMeaning(key="generator.sampling_params.temperature", knob="temperature"),
    ),
)
