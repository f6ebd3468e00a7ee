"""slime, checked after v0.3.1."""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.slime.knobs import KNOBS

_TOKENS = "tokens of a response, then responses; all tokens with --calculate-per-token-loss"
_SAMPLES = "responses of the rollout batch"


FRAMEWORK = Framework(
    name="slime",
    title="slime",
    how_to_dump="set --dump-details",
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
        KeyMeaning(key="train/entropy_loss", metric="entropy/mean", over=_TOKENS, policies="learner",
                caveat="positive entropy"),
        KeyMeaning(key="train/pg_clipfrac", metric="clip/any_rate", over=_TOKENS,
                mask="only where the clip removes the gradient", policies="learner / old",
                when={"advantage_estimator": ("grpo", "gspo", "reinforce_plus_plus", "ppo")},
                structural_zero=RATIO_IS_ONE),
        KeyMeaning(key="train/pg_clipfrac", over=_TOKENS, when={"advantage_estimator": ("cispo",)},
                caveat="counts ratios outside the bounds for any sign of A; with cispo they still have "
                    "a gradient"),
        KeyMeaning(key="train/ppo_kl", metric="kl/old_policy/k1", estimator="k1", over=_TOKENS,
                policies="old | learner", structural_zero=RATIO_IS_ONE),
        *(KeyMeaning(key="train/kl_loss", metric=f"kl/reference/{kind}", estimator=kind, over=_TOKENS,
                  policies="learner | reference", when={"kl_loss_type": names},
                  how_to_log="set --use-kl-loss")
          for kind, names in (("k1", ("k1",)), ("k2", ("k2",)), ("k3", ("k3", "low_var_kl")))),
        KeyMeaning(key="train/train_rollout_logprob_abs_diff", metric="mismatch/logprob_diff_mean",
                over=_TOKENS, policies="old - sampler"),
        KeyMeaning(key="train/ois", metric="ratio/mean", over=_TOKENS, policies="learner / old"),
        KeyMeaning(key="train/tis", over=_TOKENS, policies="old / sampler",
                caveat="the raw ratio, before the cap"),
        KeyMeaning(key="train/tis_clipfrac", metric="correction/capped_rate", over=_TOKENS),
        KeyMeaning(key="train/tis_abs", over=_TOKENS),
        KeyMeaning(key="train/opsm_clipfrac", metric="correction/stale_rate", over="responses"),
        KeyMeaning(key="train/pg_loss"),
        KeyMeaning(key="train/loss", metric="optimizer/loss"),
        KeyMeaning(key="train/grad_norm", metric="optimizer/grad_norm"),
        KeyMeaning(key="train/lr-pg_0", metric="optimizer/learning_rate"),
        KeyMeaning(key="train/<path>"),
        KeyMeaning(key="rollout/response_len/mean", metric="length/mean", over=_SAMPLES),
        KeyMeaning(key="rollout/response_len/max", metric="length/max", over=_SAMPLES),
        KeyMeaning(key="rollout/response_len/<statistic>"),
        KeyMeaning(key="rollout/response_lengths", over=_SAMPLES),
        KeyMeaning(key="rollout/truncated_ratio", metric="length/truncated_rate", over=_SAMPLES),
        KeyMeaning(key="rollout/raw_reward", metric="reward/mean", over=_SAMPLES),
        KeyMeaning(key="rollout/rewards", over=_SAMPLES,
                caveat="normalized rewards, near 0 by construction; rollout/raw_reward is the reward"),
        KeyMeaning(key="rollout/zero_std/count_<reward>", unit="groups",
                caveat="a count of groups for each reward value; not every row has every key"),
        KeyMeaning(key="rollout/dynamic_filter/drop_<reason>", unit="groups", caveat="a count"),
        KeyMeaning(key="rollout/log_probs", policies="old",
                caveat="the mean log-probability of the sampled tokens, not an entropy"),
        KeyMeaning(key="rollout/rollout_log_probs", policies="sampler"),
        KeyMeaning(key="rollout/ref_log_probs", policies="reference"),
        KeyMeaning(key=("rollout/rollout_log_probs", "rollout/log_probs"), metric="mismatch/kl_k1",
                formula="difference", estimator="k1", over=_TOKENS, policies="sampler | old"),
        KeyMeaning(key="rollout/repetition_frac", metric="text/repetition_rate", over=_SAMPLES),
        KeyMeaning(key="rollout/<path>"),
        KeyMeaning(key="passrate/pass@<k>", metric="pass_at_k/<k>", over="prompts"),
        KeyMeaning(key="perf/step_time", metric="time/step", unit="s"),
        KeyMeaning(key="perf/rollout_time", metric="time/rollout", unit="s"),
        KeyMeaning(key="perf/<path>"),
        KeyMeaning(key="eval/<dataset>-truncated_ratio"),
        KeyMeaning(key="eval/<dataset>", metric="reward/heldout", over="evaluation responses",
                how_to_log="set --eval-prompt-data and --eval-interval"),
        KeyMeaning(key="multi_turn/<path>"),
    ),
    knobs=KNOBS,
)
