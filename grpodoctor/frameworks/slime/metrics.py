"""slime, checked after v0.3.1."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.vocabulary.knobs import Setting

_ONE_UPDATE = (
    "with one update per batch the old log-probabilities are those of the learner itself: the "
    "ratio is 1 by construction"
)
_TOKENS = "tokens of a response, then responses; all tokens under --calculate-per-token-loss"
_SAMPLES = "responses of the rollout batch"


def _advantage(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    if setting not in ("grpo", "gspo", "cispo"):
        return None
    return "centred" if others.get("disable_grpo_std_normalization") is True else "group"


def _kl(setting: Setting, others: Mapping[str, Setting]) -> Setting | None:
    return setting if others.get("use_kl_loss") is True else None


FRAMEWORK = Framework(
    name="slime",
    title="slime",
    dumps="set --dump-details",
    row_keys=RowKeys(step=("rollout/step", "train/step", "step", "_step")),
    first_step=0,
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
        Meaning(key="train/entropy_loss", metric="entropy/mean", over=_TOKENS, policies="learner",
                lie="positive entropy"),
        Meaning(key="train/pg_clipfrac", metric="clip/any_rate", over=_TOKENS,
                mask="only where the clip removes the gradient", policies="learner / old",
                when={"advantage_estimator": ("grpo", "gspo", "reinforce_plus_plus", "ppo")},
                structural_zero=_ONE_UPDATE),
        Meaning(key="train/pg_clipfrac", over=_TOKENS, when={"advantage_estimator": ("cispo",)},
                lie="ratios outside the band whatever the sign of A; under cispo they keep a "
                    "gradient"),
        Meaning(key="train/ppo_kl", metric="kl/old_policy/k1", estimator="k1", over=_TOKENS,
                policies="old | learner", structural_zero=_ONE_UPDATE),
        *(Meaning(key="train/kl_loss", metric=f"kl/reference/{kind}", estimator=kind, over=_TOKENS,
                  policies="learner | reference", when={"kl_loss_type": names},
                  how="set --use-kl-loss")
          for kind, names in (("k1", ("k1",)), ("k2", ("k2",)), ("k3", ("k3", "low_var_kl")))),
        Meaning(key="train/train_rollout_logprob_abs_diff", metric="mismatch/logprob_diff_mean",
                over=_TOKENS, policies="old - sampler"),
        Meaning(key="train/ois", metric="ratio/mean", over=_TOKENS, policies="learner / old"),
        Meaning(key="train/tis", over=_TOKENS, policies="old / sampler",
                lie="the raw ratio, before the cap"),
        Meaning(key="train/tis_clipfrac", metric="correction/capped_rate", over=_TOKENS),
        Meaning(key="train/tis_abs", over=_TOKENS),
        Meaning(key="train/opsm_clipfrac", metric="correction/stale_rate", over="responses"),
        Meaning(key="train/pg_loss"),
        Meaning(key="train/loss", metric="optimizer/loss"),
        Meaning(key="train/grad_norm", metric="optimizer/grad_norm"),
        Meaning(key="train/lr-pg_0", metric="optimizer/learning_rate"),
        Meaning(key="train/<path>"),
        Meaning(key="rollout/response_len/mean", metric="length/mean", over=_SAMPLES),
        Meaning(key="rollout/response_len/max", metric="length/max", over=_SAMPLES),
        Meaning(key="rollout/response_len/<statistic>"),
        Meaning(key="rollout/response_lengths", over=_SAMPLES),
        Meaning(key="rollout/truncated_ratio", metric="length/truncated_rate", over=_SAMPLES),
        Meaning(key="rollout/raw_reward", metric="reward/mean", over=_SAMPLES),
        Meaning(key="rollout/rewards", over=_SAMPLES,
                lie="normalised rewards, about 0 by construction: rollout/raw_reward is the reward"),
        Meaning(key="rollout/zero_std/count_<reward>", unit="groups",
                lie="a count of groups, one key for each reward; keys come and go"),
        Meaning(key="rollout/dynamic_filter/drop_<reason>", unit="groups", lie="a count"),
        Meaning(key="rollout/log_probs", policies="old",
                lie="mean log-probability of the sampled tokens, no entropy"),
        Meaning(key="rollout/rollout_log_probs", policies="sampler"),
        Meaning(key="rollout/ref_log_probs", policies="reference"),
        Meaning(key=("rollout/rollout_log_probs", "rollout/log_probs"), metric="mismatch/kl_k1",
                formula="difference", estimator="k1", over=_TOKENS, policies="sampler | old"),
        Meaning(key="rollout/repetition_frac", metric="text/repetition_rate", over=_SAMPLES),
        Meaning(key="rollout/<path>"),
        Meaning(key="passrate/pass@<k>", metric="pass_at_k/<k>", over="prompts"),
        Meaning(key="perf/step_time", metric="time/step", unit="s"),
        Meaning(key="perf/rollout_time", metric="time/rollout", unit="s"),
        Meaning(key="perf/<path>"),
        Meaning(key="eval/<dataset>-truncated_ratio"),
        Meaning(key="eval/<dataset>", metric="reward/heldout", over="evaluation responses",
                how="set --eval-prompt-data and --eval-interval"),
        Meaning(key="multi_turn/<path>"),
    ),
    knobs=(
        KnobMeaning(key="advantage_estimator", knob="loss",
                    of={"grpo": "ppo_clip", "gspo": "gspo", "cispo": "cispo"}, default="grpo"),
        KnobMeaning(key="advantage_estimator", knob="advantage", of=_advantage),
        KnobMeaning(key="eps_clip", knob="clip_low"),
        KnobMeaning(key="eps_clip_high", knob="clip_high"),
        KnobMeaning(key="eps_clip", knob="clip_high"),
        KnobMeaning(key="use_tis", knob="correction", of={True: "tis_token", False: "none"}),
        KnobMeaning(key="tis_clip", knob="correction_cap"),
        KnobMeaning(key="kl_loss_coef", knob="kl_coefficient", of=_kl),
        KnobMeaning(key="entropy_coef", knob="entropy_coefficient"),
        KnobMeaning(key="n_samples_per_prompt", knob="group_size"),
        KnobMeaning(key="rollout_batch_size", knob="prompts_per_batch"),
        KnobMeaning(key="num_steps_per_rollout", knob="updates_per_batch"),
        KnobMeaning(key="lr", knob="learning_rate"),
        KnobMeaning(key="rollout_max_response_len", knob="max_length"),
        KnobMeaning(key="rollout_temperature", knob="temperature"),
    ),
)
