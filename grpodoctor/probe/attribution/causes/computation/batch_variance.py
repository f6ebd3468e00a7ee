"""An engine's log-probabilities depend on the other responses in the batch."""

from __future__ import annotations

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import difference_gap
from grpodoctor.probe.attribution.variant import Variant

_LEAST = 0.2


class BatchVariance(Cause):
    """Proven by scoring the same tokens twice, in opposite orders."""

    id = "batch-variance"
    title = "An engine's log-probabilities depend on the rest of the batch"
    remedies = (
        "Use the engine's batch-invariant kernels if it has them (vLLM: VLLM_BATCH_INVARIANT=1), "
        "and fixed shapes in the learner: the same padding and micro-batch size for old and new "
        "log-probabilities.",
        "If the difference is larger than rounding, check padding, masks and position ids: a "
        "response must not attend to other responses.",
    )
    peels = False
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A failed control, or a gap that no other cause explains."""
        if "nondeterminism" in experiments.named:  # every second scoring differs
            return None
        failed = any(
            control.passed is False and control.name == "repeat"
            for control in experiments.case.controls
        )
        return Hypothesis(0.9 if failed else 0.1)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Compare each engine with itself in reverse order, as a share of the gap."""
        found = {"learner": self._against_itself(experiments, variant, "learner")}
        if found["learner"] < _LEAST * variant.gap:
            try:
                found["sampler"] = self._against_itself(experiments, variant, "sampler")
            except EngineError:
                found["sampler"] = 0.0  # the sampler cannot score
        side = max(found, key=lambda name: found[name])
        share = found[side] / variant.gap
        if share < _LEAST:
            return None
        return ExperimentResult(
            summary=(
                f"reordering the batch changes the {side}'s log-probabilities by k3 "
                f"{found[side]:.2g} nats per token; the gap is {variant.gap:.2g}"
            ),
            explained=min(1.0, share),
            confidence="proven" if share > 0.5 else "likely",
            details=(side,),
            figures={"itself": found[side]},
        )

    @staticmethod
    def _against_itself(experiments: Experiments, variant: Variant, side: str) -> float:
        setup, case = variant.setup, experiments.case
        learner = case.learner if setup.swapped else setup.learner  # a reference is neither side
        engine = learner if side == "learner" else setup.rescored or case.sampler
        given_N = experiments.score(engine, setup.processing)
        turned_N = experiments.score(engine, setup.processing, backwards=True)
        return difference_gap(given_N, turned_N)
