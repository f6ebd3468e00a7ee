"""The two engines have different LoRA adapters."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.engine_variants import on_one_device
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.controls.run_controls import adapters_in_words
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_OPTIONS = ("adapter", "adapter_use")
_TWICE = "merged_twice"


class OtherAdapter(Cause):
    """Proven by scoring with the sampler's adapter, or without one."""

    id = "adapter"
    title = "The engines have different LoRA adapters"
    remedies = (
        "Load the adapter of the present step into the sampler before every rollout, and name it "
        "in each request.",
    )
    uses_other_files = True
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The options name different adapters, and the learner can load the sampler's."""
        scores, learner = variant.setup.learner, _compared(experiments, variant)
        sampler = experiments.case.sampler
        if loading_engine(scores) is None:
            return None
        is_other = adapters_in_words(sampler, learner) or _is_twice(sampler, learner)
        return Hypothesis(0.9) if is_other else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score with the sampler's adapter; if a reference engine scores, with the learner's."""
        sampler, learner = experiments.case.sampler, _compared(experiments, variant)
        side = learner if variant.setup.swapped else sampler
        other = {name: side.options.get(name) for name in _OPTIONS}
        scores = variant.setup.learner
        after = experiments.vary(
            variant, learner=(loading_engine(scores) or scores).with_options(**other)
        )
        words, identity = adapters_in_words(sampler, learner), None
        if not words:
            identity = _merged_twice(_is_twice(sampler, learner))
            words = identity.title[0].lower() + identity.title[1:]
        return ExperimentResult(
            summary=(
                f"{words}; with the adapter {_times(side)}, as in the {variant.setup.sides[0]}, k3 "
                f"falls from {variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            identity=identity,
        )


def _compared(experiments: Experiments, variant: Variant) -> EngineSpec:
    """The learner whose options count; a reference engine has none of its own."""
    setup = variant.setup
    return experiments.case.learner if setup.swapped else setup.learner


def _times(engine: EngineSpec) -> str:
    if not engine.options.get("adapter"):
        return "times 0"
    return f"times {2 if engine.options.get('adapter_use') == _TWICE else 1}"


def _is_twice(sampler: EngineSpec, learner: EngineSpec) -> str:
    """The only side whose option merges the adapter twice; empty without one."""
    sides = {"sampler": sampler, "learner": learner}
    twice = [side for side, each in sides.items() if each.options.get("adapter_use") == _TWICE]
    return twice[0] if len(twice) == 1 else ""


def _merged_twice(side: str) -> Identity:
    return Identity(
        OtherAdapter.id,
        f"The {side} merges the LoRA adapter twice",
        (
            "Merge the adapter once: a model that was saved after a merge has the update already, "
            "so load it without the adapter.",
        ),
    )


def loading_engine(learner: EngineSpec) -> EngineSpec | None:
    """The learner as an engine that loads adapters: FSDP's does not, but its single process."""
    if learner.kind.single_process:
        learner = on_one_device(learner)
    return learner if learner.engine == "transformers" else None
