"""KLD101."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.engines.mismatch import K3, LARGEST, REQUIRES_TWO_ENGINES
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.preflight.sampling.sampled_responses import ResponseSampler
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.engines.jobs import ScoreJob
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_UNUSED_DROPOUT = ("classifier_dropout", "classifier_dropout_prob")
"""Dropout of heads that a language model does not have."""
_ADVICE = ("Find the cause: grpodoctor probe with the two as --sampler and --learner.",)


class InitialReferenceKl(Check):
    """The KL divergence from the reference is not zero before the first update.

    What it sees:
        Learner and reference score the same responses. Without --reference, the learner scores them
        twice, in opposite orders. Also reports dropout in config.json: in training mode it makes
        two forward passes of the same weights differ.

    Why it matters:
        At step zero the policy is the reference, so the KL is zero. Any other value becomes the
        floor of every KL curve of the run: it adds a penalty without a reason, or stops the run
        early. A large value means that the reference is another model.

    What to do:
        Compute both with the same precision and attention kernel. Set dropout to zero.

    When it is wrong:
        The reference may be another model on purpose.

    References:
        slime tests that the KL of its first step is exactly zero.
    """

    code: ClassVar[str] = "KLD101"
    name: ClassVar[str] = "nonzero-kl-at-start"
    former_names: ClassVar[tuple[str, ...]] = ("kl-at-step-zero",)
    summary: ClassVar[str] = "The KL divergence from the reference is not zero at the start."
    min_kl: ClassVar[float] = 1e-6
    """k3 from rounding in float32; bfloat16 in a batch of another order has up to some 1e-4."""
    other_model_kl: ClassVar[float] = 1e-2
    """k3 from which the reference is another model; rounding is smaller."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Score the sampler's responses with policy and reference."""
        dropout = tuple(_dropout(context))
        if context.sampler is None or context.learner is None:
            return dropout or REQUIRES_TWO_ENGINES
        return (*dropout, *self._measured(context, context.sampler, context.learner))

    def _measured(
        self, context: PreflightContext, sampler: ResponseSampler, learner: EngineSpec
    ) -> Iterator[CheckFinding]:
        temperature = context.settings.temperatures[0]
        sampled, processing = sampler.sample(temperature), Processing(temperature=temperature)
        job = ScoreJob(rollouts=sampled, processing=processing)
        backwards = ScoreJob(rollouts=sampled, processing=processing, backwards=True)
        if context.reference is None:
            policy, reference = sampler.runner.run(learner, [job, backwards])
        else:
            policy = sampler.runner.run(learner, [job])[0]
            reference = sampler.runner.run(context.reference, [job])[0]
        comparison = compare(policy, reference, seed=context.settings.seed)
        k3, largest = comparison.value(K3), comparison.value(LARGEST)
        figures = {"k3": k3, "largest": largest}
        other = "the reference" if context.reference else "itself in reverse batch order"
        summary = f"KL (k3) between the learner and {other} is {k3:.1e} nats per token"
        if k3 >= self.other_model_kl:
            cause = "the models differ" if context.reference else "more than rounding explains"
            yield CheckFinding("critical", f"{summary}: {cause}.", _ADVICE, (), figures)
        elif k3 >= self.min_kl:
            advice = ("This is the floor of the run's KL curves; compute both in the same way.",)
            yield CheckFinding("info", f"{summary}.", advice, (), figures)


def _dropout(context: PreflightContext) -> Iterator[CheckFinding]:
    nested = context.config.get("text_config")
    values = {**context.config, **(nested if isinstance(nested, Mapping) else {})}
    rates = {
        name: value
        for name, value in values.items()
        if ("dropout" in name or name.endswith("pdrop"))
        and name not in _UNUSED_DROPOUT
        and isinstance(value, float)
        and value > 0
    }
    if rates:
        yield CheckFinding(
            "warning",
            f"config.json sets dropout to {max(rates.values()):g}: log-probabilities of the same "
            "weights differ in training mode.",
            ("Set dropout to zero for reinforcement learning.",),
            tuple(f"{name}: {value}" for name, value in rates.items()),
        )
