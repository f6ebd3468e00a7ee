"""TRL's GRPO trainers and programs that log through them: Unsloth, Axolotl.

Checked in the source of 1.10 (commit f2cd5771) and in the wheel of 1.16; older meanings in the tags
back to 0.16. A row is the mean of all values since the last log, also for keys named max or min.
Lengths, rewards and truncation are over the responses of a generation batch, on all ranks; entropy,
KL and clip shares are over the tokens of a micro-batch, on all ranks since 1.9. Tool failures are
divided by tool calls. `AsyncGRPOTrainer` uses `kl` and `reward_std` for other quantities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import RATIO_IS_ONE, KeyMeaning, without_metric
from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.frameworks.trl.knobs import KNOBS
from grpodoctor.vocabulary.knobs import Setting

_BATCH = "responses of the generation batch, all ranks"
_SIGN_AWARE = "only where the clip removes the gradient"
_CLIPPED = "token ratios; sequence ratios with importance_sampling_level=sequence"
_TRAINER = "the trainer class"
_SYNC = {_TRAINER: ("GRPOTrainer",)}
_ASYNC = {_TRAINER: ("AsyncGRPOTrainer",)}
_ASYNC_KEYS = ("buffer_qsize", "weight_sync_time_s", "wait_scoring_ms", "scoring_time_ms",
               "generation_tok_per_s", "training_tok/s", "forward_time_s", "train_seq_len")
"""Keys of the asynchronous trainer, which gives `kl` and `reward_std` other meanings. TRL 1.16
writes them below `perf/`."""
SUMMARY_KEYS = ("total_flos", "train_loss", "train_runtime", "train_samples_per_second",
                "train_steps_per_second")
"""Keys of the row that transformers adds after the last step."""
_VLLM = "set use_vllm=True and vllm_importance_sampling_correction=True"


def _clip(key: str, metric: str) -> KeyMeaning:
    return KeyMeaning(key, metric, over=_CLIPPED, mask=_SIGN_AWARE,
                   policies="learner / old", since="0.17", structural_zero=RATIO_IS_ONE)


_ENTROPY = (
    KeyMeaning("entropy", "entropy/mean", over="tokens of a micro-batch, all ranks",
        mask="without tool tokens; without truncated responses with mask_truncated_completions",
        policies="learner", since="0.20", how_to_log="set use_liger_kernel=False if you set it to True"),
)
_LENGTH = (
    KeyMeaning("completions/mean_length", "length/mean", over=_BATCH, since="0.17"),
    KeyMeaning("completion_length", "length/mean", over=_BATCH),
    KeyMeaning("completions/max_length", "length/max", over=_BATCH, since="0.17"),
    KeyMeaning("completions/min_length", "length/min", over=_BATCH, since="0.17"),
    KeyMeaning("completions/clipped_ratio", "length/truncated_rate", over=_BATCH, since="0.17",
        caveat="the share of responses without an end-of-sequence token, not a clip fraction"),
    KeyMeaning("completions/mean_terminated_length", "length/terminated_mean", over=_BATCH,
        since="0.17", zero_is_absent=True, caveat="0 if every response was truncated"),
    KeyMeaning("completions/min_terminated_length", over=_BATCH, since="0.17"),
    KeyMeaning("completions/max_terminated_length", over=_BATCH, since="0.17"),
)
_REWARD = (
    KeyMeaning("reward", "reward/mean", over=_BATCH),
    KeyMeaning("reward_std", "reward/std", over=_BATCH, since="0.27", when=_SYNC,
        estimator="standard deviation over the batch"),
    KeyMeaning("reward_std", "groups/reward_std", over="groups", until="0.27", when=_SYNC,
        estimator="mean of the groups' unbiased standard deviations"),
    KeyMeaning("reward_std", "groups/reward_std", over="groups", when=_ASYNC,
        estimator="mean of the groups' standard deviations"),
    KeyMeaning("rewards/<func>/mean", "reward/component/<func>/mean", over=_BATCH,
        mask="without responses for which the function returned NaN"),
    KeyMeaning("rewards/<func>/std", "reward/component/<func>/std", over=_BATCH,
        mask="without responses for which the function returned NaN"),
    KeyMeaning("rewards/<func>", "reward/component/<func>/mean", over=_BATCH, until="0.17"),
    KeyMeaning("frac_reward_zero_std", "groups/zero_variance_rate", over="responses", since="0.18",
        when={"scale_rewards": ("group", "none", True, False)}),
    KeyMeaning("frac_reward_zero_std", over="responses", since="0.18",
        when={"scale_rewards": ("batch",)},
        caveat="with scale_rewards=batch it is 0 or 1 for the whole batch and does not describe "
        "groups"),
)
_CLIP = (
    _clip("clip_ratio/low_mean", "clip/low_rate"),
    _clip("clip_ratio/high_mean", "clip/high_rate"),
    _clip("clip_ratio/region_mean", "clip/any_rate"),
    KeyMeaning("clip_ratio/low_min", over="minimum over ranks; over sequences since 1.9",
        since="0.17"),
    KeyMeaning("clip_ratio/high_max", over="maximum over ranks; over sequences since 1.9",
        since="0.17"),
    KeyMeaning("clip_ratio", "clip/any_rate", over="tokens", policies="learner / old",
        structural_zero=RATIO_IS_ONE),
    KeyMeaning("cispo_clip_ratio", "clip/high_rate", over="tokens", mask="A > 0 only",
        policies="learner / old", structural_zero=RATIO_IS_ONE,
        caveat="tokens whose weight is capped; they still have a gradient"),
    KeyMeaning("vespo/phi_seq_mean", "clip/gate_mean", over="sequences"),
)
_DRIFT = (
    KeyMeaning("kl", "kl/reference/k3", over="tokens", estimator="k3", when=_SYNC,
        policies="learner | reference", how_to_log="set beta=1e-6, too small to matter"),
    KeyMeaning("kl", "mismatch/kl_k3", over="tokens", estimator="k3", when=_ASYNC,
        policies="sampler | learner",
        caveat="the asynchronous trainer compares with the sampler, so it includes staleness"),
    KeyMeaning("ratio", "ratio/mean", over="tokens", when=_ASYNC, policies="learner / sampler"),
)
_MISMATCH = (
    KeyMeaning("sampling/sampling_logp_difference/mean", "mismatch/logprob_diff_mean",
        over="tokens of a rank, then ranks", policies="old - sampler", since="0.23",
        how_to_log=_VLLM),
    KeyMeaning("sampling/sampling_logp_difference/max", "mismatch/logprob_diff_max/worst_sequence",
        over="tokens, all ranks", policies="old - sampler", since="0.23", how_to_log=_VLLM),
    KeyMeaning("sampling/importance_sampling_ratio/mean", "correction/weight_mean",
        policies="old / sampler", since="0.23", how_to_log=_VLLM,
        over="tokens; sequences in the sequence modes",
        caveat="measured after the cap or mask, not the raw ratio"),
    KeyMeaning("sampling/importance_sampling_ratio/max", policies="old / sampler", since="0.23",
        caveat="measured after the cap, so it hides how large the raw ratio was"),
    KeyMeaning("sampling/importance_sampling_ratio/min", policies="old / sampler", since="0.23",
        caveat="measured after the mask, where masked tokens count as 0"),
)
_OPTIMIZER = (
    KeyMeaning("loss", "optimizer/loss", over="micro-batches since the last log",
        caveat="near 0 by construction; only its gradient carries information"),
    KeyMeaning("grad_norm", "optimizer/grad_norm", over="the last step before the log"),
    KeyMeaning("learning_rate", "optimizer/learning_rate"),
    KeyMeaning("entropy_coef", "optimizer/entropy_coefficient"),
    KeyMeaning("aux_loss", "experts/auxiliary_loss", over="micro-batches",
        caveat="added to the loss with router_aux_loss_coef, which defaults to the model's value"),
    KeyMeaning("tools/call_frequency", "tools/calls_per_response", over=_BATCH),
    KeyMeaning("tools/failure_frequency", "tools/failure_rate", over="tool calls",
        caveat="0 if no tool was called"),
    KeyMeaning("step_time", "time/step", unit="s", since="0.26", always=True),
    *without_metric("policy_loss", "num_tokens", "epoch", *SUMMARY_KEYS,
        "profiling/Time taken: GRPOTrainer.<path>", "profiling/<path>", "perf/<path>",
        "batch/<path>", *_ASYNC_KEYS),
)
_EVALUATION = (
    KeyMeaning("eval_reward", "reward/heldout", over="held-out responses",
        how_to_log="give an eval_dataset and set eval_strategy=steps"),
    KeyMeaning("eval_<set>_reward", "reward/heldout", over="held-out responses",
        caveat="with several eval datasets, each has its own name"),
    KeyMeaning("eval/reward", "reward/heldout", over="held-out responses"),
    *(KeyMeaning(f"eval{slash}rewards/<func>/{kind}", f"reward/heldout/component/<func>/{kind}",
        over="held-out responses")
      for slash in "_/" for kind in ("mean", "std")),
    *without_metric("eval_<path>", "eval/<path>"),
)


def _infer_settings(rows: Sequence[Mapping[str, float]]) -> Mapping[str, Setting]:
    """Infer which trainer wrote the rows: only the asynchronous one times its weight sync."""
    keys = {key.rpartition("/")[2] for row in rows for key in row}
    return {_TRAINER: "GRPOTrainer" if keys.isdisjoint(_ASYNC_KEYS) else "AsyncGRPOTrainer"}


FRAMEWORK = Framework(
    name="trl",
    title="TRL GRPOTrainer",
    how_to_dump="set log_completions=True",
    aliases=("unsloth", "axolotl"),
    prefixes=("train/",),
    row_keys=RowKeys(step=("step", "global_step", "train/global_step", "_step")),
    signature=(
        "completions/mean_terminated_length",
        "sampling/sampling_logp_difference/mean",
        "clip_ratio/region_mean",
        "profiling/Time taken: GRPOTrainer.<path>",
        ("reward", "reward_std", "completions/mean_length"),
        ("reward", "reward_std", "completion_length"),
        ("reward", "reward_std", "frac_reward_zero_std"),
        ("reward", "reward_std", "kl", "learning_rate"),
    ),
    version_key="trl_version",
    defaults={"scale_rewards": "group", _TRAINER: "GRPOTrainer"},
    infer_settings=_infer_settings,
    meanings=(*_ENTROPY, *_LENGTH, *_REWARD, *_CLIP, *_DRIFT, *_MISMATCH, *_OPTIMIZER,
              *_EVALUATION),
    knobs=KNOBS,
)
