"""prime-rl's trainer and orchestrator, which write to one log. Checked for v0.8.1."""

from __future__ import annotations

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning
from grpodoctor.frameworks.prime_rl.knobs import KNOBS

_LOSS = "loss tokens, all ranks"
_MASKED = "tokens of a response, then responses"
_DELTA = "tokens whose probability changed by more than the limit, not clipped ratios"
_LAG = "policy versions"


def _statistics(key: str, metric: str, **more: str) -> tuple[KeyMeaning, ...]:
    """A key that is logged as mean, median, std, min and max; only the mean has a metric."""
    return (KeyMeaning(key=f"{key}/mean", metric=metric, **more), KeyMeaning(key=f"{key}/<statistic>"))  # type: ignore[arg-type]  # texts only


FRAMEWORK = Framework(
    name="prime-rl",
    title="prime-rl",
    signature=(
        "mismatch_kl/<env>/mean",
        "is_masked/mean",
        "train/agg/<subset>/num_output_tokens/mean",
        "train/agg/<subset>/<agent>/solved_none",
        "kl_ent_ratio/mean",
        "optim/grad_norm",
        "console/Mismatch KL",
        "console/Max Off-Policy",
    ),
    version_key="prime_rl_version",
    meanings=(
        *_statistics("entropy/all", "entropy/mean", over=_LOSS, policies="learner"),
        KeyMeaning(key="entropy/<env>/<statistic>"),
        *_statistics("mismatch_kl/all", "mismatch/kl_k3", over=_LOSS, estimator="k3",
                     policies="sampler | learner",
                     caveat="compares with the current learner, so it includes staleness"),
        KeyMeaning(key="mismatch_kl/all/max", over=_LOSS),
        KeyMeaning(key="mismatch_kl/<env>/<statistic>"),
        KeyMeaning(key="masked_mismatch_kl/<statistic>", over=_MASKED),
        KeyMeaning(key="unmasked_mismatch_kl/<statistic>", over=_MASKED),
        *_statistics("is_masked", "clip/any_rate", over=_MASKED, policies="learner / sampler",
                     caveat=_DELTA),
        *_statistics("is_masked_low", "clip/low_rate", over=_MASKED,
                     policies="learner / sampler", caveat=_DELTA),
        *_statistics("is_masked_high", "clip/high_rate", over=_MASKED,
                     policies="learner / sampler", caveat=_DELTA),
        KeyMeaning(key="masked_advantage_positive/<statistic>"),
        KeyMeaning(key="masked_advantage_negative/<statistic>"),
        KeyMeaning(key="kl_ent_ratio/<statistic>"),
        KeyMeaning(key="ref_kl/<path>", policies="learner | reference"),
        *_statistics("loss", "optimizer/loss"),
        KeyMeaning(key="nll/<statistic>"),
        KeyMeaning(key="max_vio/<statistic>", caveat="the load over the mean load, minus 1"),
        KeyMeaning(key="routing_confidence/<statistic>"),
        KeyMeaning(key="optim/lr", metric="optimizer/learning_rate"),
        KeyMeaning(key="optim/grad_norm", metric="optimizer/grad_norm"),
        KeyMeaning(key="optim/<path>"),
        KeyMeaning(key="perf/<path>"),
        KeyMeaning(key="time/step", metric="time/step", unit="s",
                caveat="trainer and orchestrator log it under the same name"),
        KeyMeaning(key="time/<path>"),
        KeyMeaning(key="train/agg/all/num_output_tokens/mean", metric="length/mean",
                over="finished rollouts"),
        KeyMeaning(key="train/agg/all/num_output_tokens/max", metric="length/max",
                over="finished rollouts"),
        KeyMeaning(key="train/agg/all/<agent>/reward/mean", metric="reward/mean",
                over="finished rollouts"),
        KeyMeaning(key="train/agg/all/<agent>/is_truncated/mean", metric="length/truncated_rate",
                over="finished rollouts"),
        KeyMeaning(key="train/agg/all/<agent>/solved_none", metric="groups/all_incorrect_rate",
                over="groups"),
        KeyMeaning(key="train/agg/all/<agent>/solved_all", metric="groups/all_correct_rate",
                over="groups"),
        KeyMeaning(key=("train/agg/all/<agent>/solved_none", "train/agg/all/<agent>/solved_all"),
                metric="groups/zero_variance_rate", formula="sum", over="groups",
                caveat="groups that share any other reward count as mixed"),
        KeyMeaning(key="train/<path>"),
        KeyMeaning(key="off_policy/mean", metric="staleness/mean", unit=_LAG, over="rollouts"),
        KeyMeaning(key="off_policy/max", metric="staleness/max", unit=_LAG, over="rollouts"),
        KeyMeaning(key="off_policy/<path>"),
        KeyMeaning(key="eval/<env>/all/<agent>/avg@<k>", metric="accuracy/heldout",
                over="evaluation rollouts"),
        *(KeyMeaning(key=f"{family}/<path>") for family in ("eval", "dispatcher", "progress",
                                                          "batch")),
        KeyMeaning(key="console/Loss", metric="optimizer/loss"),
        KeyMeaning(key="console/Entropy", metric="entropy/mean", over=_LOSS, policies="learner"),
        KeyMeaning(key="console/Mismatch KL", metric="mismatch/kl_k3", over=_LOSS, estimator="k3",
                policies="sampler | learner"),
        KeyMeaning(key="console/Grad. Norm", metric="optimizer/grad_norm"),
        KeyMeaning(key="console/LR", metric="optimizer/learning_rate"),
        KeyMeaning(key="console/Reward", metric="reward/mean", over="finished rollouts"),
        KeyMeaning(key="console/Truncation", metric="length/truncated_rate", unit="percent",
                over="finished rollouts"),
        KeyMeaning(key="console/Max Off-Policy", metric="staleness/max", unit=_LAG, over="rollouts"),
        KeyMeaning(key="console/<path>"),
    ),
    knobs=KNOBS,
)
