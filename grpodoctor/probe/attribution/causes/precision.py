"""One side computes in a coarser precision than the other."""

from __future__ import annotations

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.experiments import COARSE, Bench, in_precision

_ENOUGH = 0.9
"""Of the gap: what is left in the coarser precision is then left to others to explain."""


class Precision(Cause):
    """Proven by running one side in the precision of the other."""

    id = "precision"
    title = "The two sides compute in different precisions"
    remedies = (
        "Run both sides in one precision. If the gap must be smaller than that of bfloat16, use "
        "float16 on both (ten bits of mantissa instead of seven) or float32 in the sampler.",
        "If the sampler must stay coarser, correct for it with truncated importance sampling, and "
        "keep the output head and the router in float32.",
    )
    when = "gap"

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """Whether the two precisions differ."""
        sampler, learner = bench.dtypes
        if sampler == learner or not {sampler, learner} <= set(COARSE):
            return None
        return Suspicion(0.5, {"sampler": sampler, "learner": learner})

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """The learner in the sampler's precision; if that is not enough, the other way round."""
        sampler, learner = (str(suspicion.facts[side]) for side in ("sampler", "learner"))
        lowered = self._lowered(bench, scene, sampler)
        if lowered is not None and _share(scene, lowered) >= _ENOUGH:
            return _outcome(f"in {sampler} the learner", scene, lowered, sampler, learner)
        # Two kernels round differently in the same precision: only without rounding do they agree.
        spec = scene.setup.rescored or bench.case.sampler
        try:
            before = bench.scene(scene, rescored=spec)
            raised = bench.scene(before, rescored=in_precision(spec, learner))
        except EngineError:
            if lowered is None:
                raise
            return _outcome(f"in {sampler} the learner", scene, lowered, sampler, learner)
        if lowered is not None and _share(scene, lowered) > _share(before, raised):
            return _outcome(f"in {sampler} the learner", scene, lowered, sampler, learner)
        return _outcome(f"in {learner} the sampler", before, raised, sampler, learner)

    @staticmethod
    def _lowered(bench: Bench, scene: Scene, dtype: str) -> Scene | None:
        try:
            return bench.scene(scene, learner=in_precision(scene.setup.learner, dtype))
        except EngineError:
            return None


def _share(before: Scene, after: Scene) -> float:
    return 1 - after.gap / before.gap if before.gap > 0 else 0.0


def _outcome(who: str, before: Scene, after: Scene, sampler: str, learner: str) -> Outcome:
    return Outcome(
        told=(
            f"the sampler computes in {sampler}, the learner in {learner}: {who} is k3 "
            f"{after.gap:.2g} instead of {before.gap:.2g} nats per token away"
        ),
        before=before,
        after=after,
        details=(f"sampler {sampler}", f"learner {learner}"),
    )
