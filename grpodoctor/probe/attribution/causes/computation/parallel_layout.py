"""One side divides the model over devices, so the two sides sum in different orders."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.engine_variants import on_one_device
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.engines.engine_facts import EngineFacts


class ParallelLayout(Cause):
    """Proven by running the parallel side on one device."""

    id = "parallel-layout"
    title = "The parallel layouts of the two sides differ"
    remedies = (
        "Give sampler and learner the same tensor-parallel degree, or sample at degree 1: partial "
        "sums over ranks are rounded before they are added.",
        "If expert or sequence parallelism is on, turn it off on one side and probe again: a "
        "layout must change nothing beyond rounding.",
    )
    when = "gap"
    least = 0.3

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The two sides have different parallel degrees."""
        sampler = _degrees(experiments.case.sampler_facts)
        learner = _degrees(experiments.case.learner_facts)
        sides = [side for side, degrees in (("learner", learner), ("sampler", sampler)) if degrees]
        if not sides or learner == sampler:
            return None
        return Hypothesis(0.4, {"sides": ",".join(sides)})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Run each parallel side on one device."""
        best: ExperimentResult | None = None
        for side in str(hypothesis.facts["sides"]).split(","):
            # Compare scores: decoding adds its own rounding, which would hide the effect.
            spec = variant.setup.rescored or experiments.case.sampler
            before = experiments.vary(variant, rescored=spec)
            if side == "learner":
                facts = experiments.case.learner_facts
                after = experiments.vary(before, learner=on_one_device(variant.setup.learner))
            else:
                facts = experiments.case.sampler_facts
                after = experiments.vary(before, rescored=on_one_device(spec))
            layout = ", ".join(f"{name} {degree}" for name, degree in _degrees(facts).items())
            outcome = ExperimentResult(
                summary=(
                    f"with the {side} on one device instead of {layout}, k3 falls from "
                    f"{before.gap:.2g} to {after.gap:.2g} nats per token"
                ),
                before=before,
                after=after,
                details=(f"{side}: {layout}",),
            )
            if best is None or _remaining(outcome) < _remaining(best):
                best = outcome
        return best


def _remaining(outcome: ExperimentResult) -> float:
    if outcome.after is None or outcome.before is None:
        return 1.0
    return outcome.after.gap / outcome.before.gap if outcome.before.gap > 0 else 1.0


def _degrees(facts: EngineFacts) -> dict[str, int]:
    return {name: int(degree) for name, degree in facts.layout.items() if degree > 1}
