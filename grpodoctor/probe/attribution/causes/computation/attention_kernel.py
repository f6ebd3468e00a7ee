"""The two sides compute attention with different kernels."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_KERNELS = ("eager", "sdpa")
"""Kernels of the learner that every build of torch has."""


class AttentionKernel(Cause):
    """Proven by running the learner with another kernel."""

    id = "attention-kernel"
    title = "The two sides compute attention with different kernels"
    remedies = (
        "Use one attention kernel on both sides (attn_implementation of the learner, the attention "
        "backend of the sampler).",
        "If one kernel is far from float32, report it and use another one: two correct kernels "
        "differ by rounding only.",
    )
    when = "gap"
    least = 0.4

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The reported kernels differ, or the gap exceeds rounding and a kernel may cause it."""
        learner = variant.setup.learner
        if "attention" not in learner.kind.experiment_options:
            return None
        ours = _kernel(learner, experiments.case.learner_facts)
        theirs = _kernel(experiments.case.sampler, experiments.case.sampler_facts)
        if theirs in _KERNELS and theirs != ours:
            return Hypothesis(0.45, {"try": theirs, "ours": ours})
        if (
            experiments.exceeds_rounding(variant)
            and theirs not in _KERNELS
            and learner.kind.model != "option"
        ):
            other = "eager" if ours != "eager" else "sdpa"
            return Hypothesis(0.03, {"try": other, "ours": ours})
        return None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score with another kernel in the learner."""
        kernel, ours = (str(hypothesis.facts[key]) for key in ("try", "ours"))
        learner = variant.setup.learner.with_options(attention=kernel)
        after = experiments.vary(variant, learner=learner)
        return ExperimentResult(
            summary=(
                f"with {kernel} attention instead of {ours} in the learner, k3 falls from "
                f"{variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=(f"learner {ours}", f"agrees with {kernel}"),
        )


def _kernel(engine: EngineSpec, facts: EngineFacts) -> str:
    return str(engine.options.get("attention") or facts.settings.get("attention") or "sdpa")
