"""One side divides the model over devices, and sums in another order than the other."""

from __future__ import annotations

from dataclasses import replace

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.engines.jobs import EngineFacts
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_DEGREES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


class ParallelLayout(Cause):
    """Proven by running the divided side on one device."""

    id = "parallel-layout"
    title = "The parallel layouts of the two sides differ"
    remedies = (
        "Give sampler and learner the same tensor-parallel degree, or sample at degree 1: partial "
        "sums over ranks are rounded before they are added.",
        "If expert or sequence parallelism is on, turn it off on one side and probe again: beyond "
        "rounding, a layout must not change anything.",
    )
    when = "gap"
    least = 0.3

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Degrees above one on either side, if not the same on both."""
        theirs, ours = (
            _degrees(each)
            for each in (experiments.case.sampler_facts, experiments.case.learner_facts)
        )
        divided = [side for side, of in (("learner", ours), ("sampler", theirs)) if of]
        if not divided or ours == theirs:
            return None
        return Hypothesis(0.4, {"sides": ",".join(divided)})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Each divided side whole."""
        best: ExperimentResult | None = None
        for side in str(hypothesis.facts["sides"]).split(","):
            if side == "learner":
                # Against scores: decoding rounds in its own way, which would hide as much again.
                spec, facts = (
                    variant.setup.rescored or experiments.case.sampler,
                    experiments.case.learner_facts,
                )
                before = experiments.vary(variant, rescored=spec)
                after = experiments.vary(before, learner=_whole(variant.setup.learner))
            else:
                spec, facts = (
                    variant.setup.rescored or experiments.case.sampler,
                    experiments.case.sampler_facts,
                )
                before = experiments.vary(variant, rescored=spec)
                after = experiments.vary(before, rescored=_whole(spec))
            layout = ", ".join(f"{name} {degree}" for name, degree in _degrees(facts).items())
            outcome = ExperimentResult(
                told=(
                    f"on one device the {side} ({layout}) is k3 {after.gap:.2g} instead of "
                    f"{before.gap:.2g} nats per token away"
                ),
                before=before,
                after=after,
                details=(f"{side}: {layout}",),
            )
            if best is None or _left(outcome) < _left(best):
                best = outcome
        return best


def _left(outcome: ExperimentResult) -> float:
    if outcome.after is None or outcome.before is None:
        return 1.0
    return outcome.after.gap / outcome.before.gap if outcome.before.gap > 0 else 1.0


def _degrees(facts: EngineFacts) -> dict[str, int]:
    return {name: int(degree) for name, degree in facts.layout.items() if degree > 1}


def _whole(engine: EngineSpec) -> EngineSpec:
    """The same engine on one device."""
    if engine.engine == "fsdp":
        single = replace(engine, engine="transformers", processes=1, launcher="")
        return single.with_options(fsdp=None, tensor_parallel=None)
    given = {name: None for name in _DEGREES if name in engine.options}
    return replace(engine, processes=1).with_options(**given)
