"""prime-rl's trainer and orchestrator, checked in the source of commit 559b4477 (v0.8.1).

Both write to one log, with the same steps. `solved_none` and `solved_all` are shares of the groups of
finished rollouts before any filter: the sum of the rewards is 0, or each reward is 1. `has_error`
and `cancelled` are shares of episodes, `is_truncated` of rollouts. `entropy` and `mismatch_kl` are
means over loss tokens; `is_masked` is a mean over the tokens of a response, then over responses.
"""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning, without_metric
from grpodoctor.frameworks.prime_rl.knobs import KNOBS

_LOSS = "loss tokens, all ranks"
_MASKED = "tokens of a response, then responses"
_DELTA = "tokens whose probability changed by more than the limit, not clipped ratios"
_LAG = "policy versions"
_EXAMPLES = "rollouts of a prompt, then prompts"


def _statistics(mean: KeyMeaning) -> tuple[KeyMeaning, ...]:
    """A key that is logged as mean, median, std, min and max; only the mean has a metric."""
    family = mean.keys[0].removesuffix("/mean")
    return (mean, *without_metric(f"{family}/<statistic>"))


_BEFORE_AGENTS = (
    KeyMeaning("reward/all/mean", "reward/mean", over=_EXAMPLES),
    *without_metric("reward/all/max", "reward/all/min", "reward/<env>/<statistic>"),
    KeyMeaning("decode_len/all/mean", "length/mean", over=_EXAMPLES),
    *without_metric("decode_len/all/max", "decode_len/all/min", "decode_len/<env>/<statistic>"),
    KeyMeaning("is_truncated/all/mean", "length/truncated_rate", over=_EXAMPLES),
    *without_metric("is_truncated/all/max", "is_truncated/<env>/<statistic>"),
    KeyMeaning("solve_none/all", "groups/all_incorrect_rate", over="groups"),
    KeyMeaning("solve_all/all", "groups/all_correct_rate", over="groups"),
    KeyMeaning("filters/all/zero_advantage", "groups/zero_variance_rate",
        over="rollouts of such groups"),
    KeyMeaning("num_turns/all/mean", "environment/turns_mean", over=_EXAMPLES),
    KeyMeaning("errored_rollouts/all", "rollouts/error_rate", over="rollouts"),
    KeyMeaning("eval/<env>/avg@<k>", "reward/heldout", over="evaluation rollouts"),
    *without_metric("solve_none/<env>", "solve_all/<env>", "effective_batch_size/<env>",
        "filters/<env>/<name>", "num_turns/<env>/<statistic>", "errored_rollouts/<env>",
        "empty_rollouts/<env>", "off_policy_level/<env>/<statistic>", "seq_len/<env>/<statistic>",
        "prefill_len/<env>/<statistic>", "samples_per_rollout/<env>/<statistic>",
        "stop_condition/<env>/<name>", "timing/<path>", "scheduler/<path>", "event_loop_lag/<name>",
        "pool/<name>", "evicted_examples/<name>", "filtered_rollouts/<name>", "elastic/<name>"),
)
"""What the orchestrator logged from March 2026 until its keys named agents. Lengths and rewards are
means of each prompt's mean; `max` and `min` are of these means. `off_policy_level` is of requests
that are still in flight."""


FRAMEWORK = Framework(
    name="prime-rl",
    title="prime-rl",
    how_to_dump_logprobs="set trainer.enable_token_export=true",
    signature=(
        "mismatch_kl/<env>/mean",
        "is_masked/mean",
        "train/agg/<subset>/num_output_tokens/mean",
        "train/agg/<subset>/<agent>/solved_none",
        "kl_ent_ratio/mean",
        "optim/grad_norm",
        "console/Mismatch KL",
        "console/Max Off-Policy",
        ("solve_none/all", "solve_all/all"),
    ),
    version_key="prime_rl_version",
    meanings=(
        *_statistics(KeyMeaning("entropy/all/mean", "entropy/mean", over=_LOSS,
            policies="learner")),
        *without_metric("entropy/<env>/<statistic>"),
        *_statistics(KeyMeaning("mismatch_kl/all/mean", "mismatch/kl_k3", over=_LOSS,
            estimator="k3", policies="sampler | learner",
            caveat="compares with the current learner, so it includes staleness")),
        KeyMeaning("mismatch_kl/all/max", over=_LOSS),
        *without_metric("mismatch_kl/<env>/<statistic>"),
        KeyMeaning("masked_mismatch_kl/<statistic>", over=_MASKED),
        KeyMeaning("unmasked_mismatch_kl/<statistic>", over=_MASKED),
        *_statistics(KeyMeaning("is_masked/mean", "clip/any_rate", over=_MASKED,
            policies="learner / sampler",
            caveat=_DELTA)),
        *_statistics(KeyMeaning("is_masked_low/mean", "clip/low_rate", over=_MASKED,
            policies="learner / sampler",
            caveat=_DELTA)),
        *_statistics(KeyMeaning("is_masked_high/mean", "clip/high_rate", over=_MASKED,
            policies="learner / sampler",
            caveat=_DELTA)),
        *without_metric("masked_advantage_positive/<statistic>",
            "masked_advantage_negative/<statistic>", "kl_ent_ratio/<statistic>"),
        KeyMeaning("ref_kl/<path>", policies="learner | reference"),
        *_statistics(KeyMeaning("loss/mean", "optimizer/loss")),
        *without_metric("nll/<statistic>"),
        *_statistics(KeyMeaning("max_vio/mean", "experts/load_max_over_mean", formula="plus-one",
            over="layers", caveat="the load over the mean load, minus 1")),
        *without_metric("routing_confidence/<statistic>"),
        KeyMeaning("optim/lr", "optimizer/learning_rate"),
        KeyMeaning("optim/grad_norm", "optimizer/grad_norm"),
        *without_metric("optim/<path>", "perf/<path>"),
        KeyMeaning("time/step", "time/step", unit="s",
            caveat="trainer and orchestrator log it under the same name"),
        *without_metric("time/<path>"),
        KeyMeaning("train/agg/all/num_output_tokens/mean", "length/mean", over="finished rollouts"),
        KeyMeaning("train/agg/all/num_output_tokens/max", "length/max", over="finished rollouts"),
        KeyMeaning("train/agg/all/<agent>/reward/mean", "reward/mean", over="finished rollouts"),
        KeyMeaning("train/agg/all/<agent>/is_truncated/mean", "length/truncated_rate",
            over="finished rollouts"),
        KeyMeaning("train/agg/all/<agent>/solved_none", "groups/all_incorrect_rate", over="groups"),
        KeyMeaning("train/agg/all/<agent>/solved_all", "groups/all_correct_rate", over="groups"),
        KeyMeaning(("train/agg/all/<agent>/solved_none", "train/agg/all/<agent>/solved_all"),
            "groups/zero_variance_rate", formula="sum", over="groups",
            caveat="groups that share any other reward count as mixed"),
        KeyMeaning("train/agg/all/<agent>/reward/max", "reward/max", over="finished rollouts"),
        KeyMeaning("train/agg/all/<agent>/reward/min", "reward/min", over="finished rollouts"),
        KeyMeaning("train/agg/all/num_output_tokens/min", "length/min", over="finished rollouts"),
        KeyMeaning("train/agg/all/num_turns/mean", "environment/turns_mean", over="episodes"),
        KeyMeaning("train/agg/all/has_error/mean", "rollouts/error_rate", over="episodes"),
        KeyMeaning("train/agg/all/cancelled/mean", "rollouts/aborted_rate", over="episodes",
            caveat="cancelled because they are too stale"),
        *without_metric("train/<path>"),
        KeyMeaning("off_policy/mean", "staleness/mean", unit=_LAG, over="rollouts"),
        KeyMeaning("off_policy/max", "staleness/max", unit=_LAG, over="rollouts"),
        KeyMeaning("off_policy/dropped", "rollouts/evicted", over="since the last step"),
        *without_metric("off_policy/<path>"),
        KeyMeaning("eval/<env>/all/<agent>/avg@<k>", "accuracy/heldout",
            over="evaluation rollouts"),
        *without_metric("eval/<path>", "dispatcher/<path>", "progress/<path>", "batch/<path>"),
        *_BEFORE_AGENTS,
        KeyMeaning("console/Loss", "optimizer/loss"),
        KeyMeaning("console/Entropy", "entropy/mean", over=_LOSS, policies="learner"),
        KeyMeaning("console/Mismatch KL", "mismatch/kl_k3", over=_LOSS, estimator="k3",
            policies="sampler | learner"),
        KeyMeaning("console/Grad. Norm", "optimizer/grad_norm"),
        KeyMeaning("console/LR", "optimizer/learning_rate"),
        KeyMeaning("console/Reward", "reward/mean", over="finished rollouts"),
        KeyMeaning("console/Truncation", "length/truncated_rate", unit="percent",
            over="finished rollouts"),
        KeyMeaning("console/Error", "rollouts/error_rate", over="episodes"),
        KeyMeaning("console/Max Off-Policy", "staleness/max", unit=_LAG, over="rollouts"),
        *without_metric("console/<path>"),
    ),
    knobs=KNOBS,
)
