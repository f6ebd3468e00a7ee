"""The two engines have different LoRA adapters."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.engine_variants import on_one_device
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.controls.run_controls import adapters_in_words
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_OPTIONS = ("adapter", "adapter_use")


class OtherAdapter(Cause):
    """Proven by scoring with the sampler's adapter, or without one."""

    id = "adapter"
    title = "The engines have different LoRA adapters"
    remedies = (
        "Load the adapter of the present step into the sampler before every rollout, and name it "
        "in each request.",
    )
    uses_other_files = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The options name different adapters, and the learner can load the sampler's."""
        case, learner = experiments.case, variant.setup.learner
        if loading_engine(learner) is None or variant.setup.swapped:
            return None
        return Hypothesis(0.9) if adapters_in_words(case.sampler, learner) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score with the sampler's adapter."""
        case, learner = experiments.case, variant.setup.learner
        other = {name: case.sampler.options.get(name) for name in _OPTIONS}
        loading = loading_engine(learner) or learner
        after = experiments.vary(variant, learner=loading.with_options(**other))
        return ExperimentResult(
            summary=(
                f"{adapters_in_words(case.sampler, learner)}; with the sampler's, k3 falls from "
                f"{variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
        )


def loading_engine(learner: EngineSpec) -> EngineSpec | None:
    """The learner as an engine that loads adapters: FSDP's does not, but its single process."""
    if learner.kind.single_process:
        learner = on_one_device(learner)
    return learner if learner.engine == "transformers" else None
