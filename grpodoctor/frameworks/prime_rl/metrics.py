"""prime-rl's trainer and orchestrator, which write one file. Checked against v0.8.1."""

from __future__ import annotations

from grpodoctor.frameworks.log_keys import Framework, KnobMeaning, Meaning

_LOSS = "loss tokens, all ranks"
_MASKED = "tokens of a response, then responses"
_DELTA = "the probability moved by more than the bound: no clip of the ratio"
_LAG = "policy versions"


def _statistics(key: str, metric: str, **more: str) -> tuple[Meaning, ...]:
    """A key that is logged as mean, median, std, min and max, of which the mean has a use."""
    return (Meaning(key=f"{key}/mean", metric=metric, **more), Meaning(key=f"{key}/<statistic>"))  # type: ignore[arg-type]  # texts only


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
        Meaning(key="entropy/<env>/<statistic>"),
        *_statistics("mismatch_kl/all", "mismatch/kl_k3", over=_LOSS, estimator="k3",
                     policies="sampler | learner",
                     lie="the learner is the current one: staleness is in it"),
        Meaning(key="mismatch_kl/all/max", over=_LOSS),
        Meaning(key="mismatch_kl/<env>/<statistic>"),
        Meaning(key="masked_mismatch_kl/<statistic>", over=_MASKED),
        Meaning(key="unmasked_mismatch_kl/<statistic>", over=_MASKED),
        *_statistics("is_masked", "clip/any_rate", over=_MASKED, policies="learner / sampler",
                     lie=_DELTA),
        *_statistics("is_masked_low", "clip/low_rate", over=_MASKED,
                     policies="learner / sampler", lie=_DELTA),
        *_statistics("is_masked_high", "clip/high_rate", over=_MASKED,
                     policies="learner / sampler", lie=_DELTA),
        Meaning(key="masked_advantage_positive/<statistic>"),
        Meaning(key="masked_advantage_negative/<statistic>"),
        Meaning(key="kl_ent_ratio/<statistic>"),
        Meaning(key="ref_kl/<path>", policies="learner | reference"),
        *_statistics("loss", "optimizer/loss"),
        Meaning(key="nll/<statistic>"),
        Meaning(key="max_vio/<statistic>", lie="load over the mean load, less 1"),
        Meaning(key="routing_confidence/<statistic>"),
        Meaning(key="optim/lr", metric="optimizer/learning_rate"),
        Meaning(key="optim/grad_norm", metric="optimizer/grad_norm"),
        Meaning(key="optim/<path>"),
        Meaning(key="perf/<path>"),
        Meaning(key="time/step", metric="time/step", unit="s",
                lie="both processes write it under one name"),
        Meaning(key="time/<path>"),
        Meaning(key="train/agg/all/num_output_tokens/mean", metric="length/mean",
                over="finished rollouts"),
        Meaning(key="train/agg/all/num_output_tokens/max", metric="length/max",
                over="finished rollouts"),
        Meaning(key="train/agg/all/<agent>/reward/mean", metric="reward/mean",
                over="finished rollouts"),
        Meaning(key="train/agg/all/<agent>/is_truncated/mean", metric="length/truncated_rate",
                over="finished rollouts"),
        Meaning(key="train/agg/all/<agent>/solved_none", metric="groups/all_incorrect_rate",
                over="groups"),
        Meaning(key="train/agg/all/<agent>/solved_all", metric="groups/all_correct_rate",
                over="groups"),
        Meaning(key=("train/agg/all/<agent>/solved_none", "train/agg/all/<agent>/solved_all"),
                metric="groups/zero_variance_rate", formula="sum", over="groups",
                lie="groups of one other reward count as mixed"),
        Meaning(key="train/<path>"),
        Meaning(key="off_policy/mean", metric="staleness/mean", unit=_LAG, over="rollouts"),
        Meaning(key="off_policy/max", metric="staleness/max", unit=_LAG, over="rollouts"),
        Meaning(key="off_policy/<path>"),
        Meaning(key="eval/<env>/all/<agent>/avg@<k>", metric="accuracy/heldout",
                over="evaluation rollouts"),
        *(Meaning(key=f"{family}/<path>") for family in ("eval", "dispatcher", "progress",
                                                          "batch")),
        Meaning(key="console/Loss", metric="optimizer/loss"),
        Meaning(key="console/Entropy", metric="entropy/mean", over=_LOSS, policies="learner"),
        Meaning(key="console/Mismatch KL", metric="mismatch/kl_k3", over=_LOSS, estimator="k3",
                policies="sampler | learner"),
        Meaning(key="console/Grad. Norm", metric="optimizer/grad_norm"),
        Meaning(key="console/LR", metric="optimizer/learning_rate"),
        Meaning(key="console/Reward", metric="reward/mean", over="finished rollouts"),
        Meaning(key="console/Truncation", metric="length/truncated_rate", unit="percent",
                over="finished rollouts"),
        Meaning(key="console/Max Off-Policy", metric="staleness/max", unit=_LAG, over="rollouts"),
        Meaning(key="console/<path>"),
    ),
    knobs=(
        KnobMeaning(key="orchestrator.group_size", knob="group_size"),
        KnobMeaning(key="trainer.optim.lr", knob="learning_rate"),
        KnobMeaning(key="orchestrator.train.sampling.temperature", knob="temperature"),
        KnobMeaning(key="orchestrator.train.sampling.max_completion_tokens", knob="max_length"),
    ),
)
