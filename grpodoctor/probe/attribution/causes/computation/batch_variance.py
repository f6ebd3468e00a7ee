"""An engine's log-probabilities depend on the other responses in the batch."""

from __future__ import annotations

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.own_variation import scored_alone
from grpodoctor.probe.attribution.tokens import difference_gap
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_LEAST, _PROVEN = 0.2, 0.5
"""Shares of the gap."""


class BatchVariance(Cause):
    """Proven by scoring the same tokens twice, in opposite orders or in another batch."""

    id = "batch-variance"
    title = "An engine's log-probabilities depend on the batch"
    remedies = (
        "Use the engine's batch-invariant kernels if it has them (vLLM: VLLM_BATCH_INVARIANT=1), "
        "and fixed shapes in the learner: the same padding and micro-batch size for old and new "
        "log-probabilities.",
        "If the difference is larger than rounding, check padding, masks and position ids: a "
        "response must not attend to other responses.",
        "Random numbers with a fixed seed, as in dropout, have the same effect: each place of the "
        "batch draws its own. Disable dropout.",
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
        """Compare each engine with itself in reverse order, then with a few responses alone.

        An engine that sorts responses by length gives most of them the same place in either order.
        """
        for words, compare in (
            ("reordering the batch", self._reordered),
            ("scoring a few of the responses alone", self._alone),
        ):
            found = {"learner": compare(experiments, variant, "learner")}
            if found["learner"] < _LEAST * variant.gap:
                try:
                    found["sampler"] = compare(experiments, variant, "sampler")
                except EngineError:
                    found["sampler"] = 0.0  # the sampler cannot score
            side = max(found, key=lambda name: found[name])
            if found[side] >= _LEAST * variant.gap:
                return _result(variant, side, found[side], words)
        return None

    def _reordered(self, experiments: Experiments, variant: Variant, side: str) -> float:
        engine, processing = _engine(experiments, variant, side), variant.setup.processing
        given_N = experiments.score(engine, processing)
        return difference_gap(given_N, experiments.score(engine, processing, backwards=True))

    def _alone(self, experiments: Experiments, variant: Variant, side: str) -> float:
        """The same between all responses at once and a few of them."""
        engine, processing = _engine(experiments, variant, side), variant.setup.processing
        found = scored_alone(experiments, variant, engine, processing)
        return 0.0 if found is None else found.gap(variant.tokens.counted_N[found.at])


def _engine(experiments: Experiments, variant: Variant, side: str) -> EngineSpec:
    setup, case = variant.setup, experiments.case
    learner = case.learner if setup.swapped else setup.learner  # a reference is neither side
    return learner if side == "learner" else setup.rescored or case.sampler


def _result(variant: Variant, side: str, changed: float, words: str) -> ExperimentResult:
    share = changed / variant.gap
    return ExperimentResult(
        summary=(
            f"{words} changes the {side}'s log-probabilities by k3 {changed:.2g} nats per token; "
            f"the gap is {variant.gap:.2g}"
        ),
        explained=min(1.0, share),
        confidence="proven" if share > _PROVEN else "likely",
        details=(side,),
        figures={"itself": changed},
    )
