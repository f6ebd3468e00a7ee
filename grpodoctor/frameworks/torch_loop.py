"""Loops that are instrumented with `Doctor`: which of its calls gives a metric."""

from __future__ import annotations

NAME = "torch"
"""Framework of a run that `Doctor` recorded."""

_CALLS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("length/truncated_rate", "length/terminated", "reward/truncated"),
     "pass truncated to step.rollouts"),
    (("length/correct", "length/incorrect", "length/group_gap", "accuracy/train",
      "groups/all_correct", "groups/all_incorrect", "entropy/correct", "entropy/incorrect"),
     "pass correct to step.rollouts"),
    (("reward/component", "groups/cancelled"), "pass components to step.rollouts"),
    (("advantage/",), "pass advantages to step.rollouts"),
    (("staleness/",), "pass staleness to step.rollouts"),
    (("text/", "groups/text"), "pass texts to step.rollouts"),
    (("mismatch/nll_gap", "entropy/"), "call step.logits"),
    (("delivery/",), "call doctor.watch_delivery, and step.delivery after each sync"),
    (("mismatch/",), "pass sampler_logprobs to step.rollouts, and call step.logits"),
    (("kl/reference",), "pass reference to step.logprobs"),
    (("correction/weight",), "pass weights to step.update"),
    (("clip/", "ratio/", "kl/old_policy"), "pass logprobs and the clip to step.update"),
    (("optimizer/loss", "optimizer/grad_norm", "optimizer/learning_rate", "optimizer/nonfinite",
      "updates_per_batch"), "call step.update with loss, grad_norm and learning_rate"),
    (("accuracy/heldout", "reward/heldout"), 'call step.reading("accuracy/heldout", value)'),
    (("reward/", "length/", "groups/"), "call step.rollouts"),
)  # fmt: skip
"""Beginnings of metric names, and the call; the first match counts."""


def call_that_gives(metric: str) -> str | None:
    """The call of `Doctor` that gives a metric, as an instruction; None without such a call."""
    return next((call for starts, call in _CALLS if metric.startswith(starts)), None)
