"""One side computes in a coarser precision than the other."""

from __future__ import annotations

from dataclasses import replace

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.rounding import COARSE, in_precision
from grpodoctor.probe.attribution.variant import Variant

_BEYOND = 10.0
"""A gap larger than this multiple of the rounding of the coarser precision has another cause, too:
kernels are chosen by precision, so a fault of one disappears with it."""
_ENOUGH = 0.9
"""Share of the gap from which the coarser precision explains it; other causes get the rest."""


class Precision(Cause):
    """Proven by running one side in the other side's precision."""

    id = "precision"
    title = "The two sides compute in different precisions"
    remedies = (
        "Run both sides in the same precision. If the gap of bfloat16 is too large, use float16 on "
        "both (ten bits of mantissa instead of seven) or float32 in the sampler.",
        "If the sampler must stay coarser, correct the gap with truncated importance sampling, and "
        "keep the output head and the router in float32.",
    )
    when = "gap"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The two sides report different precisions."""
        sampler, learner = experiments.dtypes
        if sampler == learner or not {sampler, learner} <= set(COARSE):
            return None
        return Hypothesis(0.5, {"sampler": sampler, "learner": learner})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Run the learner in the sampler's precision; if that is not enough, the reverse."""
        sampler, learner = (str(hypothesis.facts[side]) for side in ("sampler", "learner"))
        lowered = self._lowered(experiments, variant, sampler)
        if lowered is not None and _share(variant, lowered) >= _ENOUGH:
            return _outcome(f"the learner in {sampler}", variant, lowered, sampler, learner)
        # Two kernels round differently in the same precision; they agree only without rounding.
        spec = variant.setup.rescored or experiments.case.sampler
        try:
            before = experiments.vary(variant, rescored=spec)
            raised = experiments.vary(before, rescored=in_precision(spec, learner))
        except EngineError:
            if lowered is None:
                raise
            return _outcome(f"the learner in {sampler}", variant, lowered, sampler, learner)
        if lowered is not None and _share(variant, lowered) > _share(before, raised):
            return _outcome(f"the learner in {sampler}", variant, lowered, sampler, learner)
        found = _outcome(f"the sampler in {learner}", before, raised, sampler, learner)
        noise = experiments.noise
        if before.gap <= _BEYOND * noise:
            return found
        return replace(
            found,
            summary=f"{found.summary}, although rounding alone causes {noise:.2g} in this model",
            confidence="likely",
            details=(*found.details, _KERNEL),
        )

    @staticmethod
    def _lowered(experiments: Experiments, variant: Variant, dtype: str) -> Variant | None:
        try:
            return experiments.vary(variant, learner=in_precision(variant.setup.learner, dtype))
        except EngineError:
            return None


_KERNEL = (
    "engines choose kernels by precision: run the coarser one with another kernel to tell rounding "
    "from a fault of that kernel"
)


def _share(before: Variant, after: Variant) -> float:
    return 1 - after.gap / before.gap if before.gap > 0 else 0.0


def _outcome(
    change: str, before: Variant, after: Variant, sampler: str, learner: str
) -> ExperimentResult:
    return ExperimentResult(
        summary=(
            f"the sampler computes in {sampler}, the learner in {learner}; with {change}, k3 falls "
            f"from {before.gap:.2g} to {after.gap:.2g} nats per token"
        ),
        before=before,
        after=after,
        details=(f"sampler {sampler}", f"learner {learner}"),
    )
