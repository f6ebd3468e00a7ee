"""An engine returns other log-probabilities when it scores the same batch again."""

from __future__ import annotations

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import difference_gap
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT

_LEAST = 0.2
"""Share of the gap from which repeated scores explain it."""


class Nondeterminism(Cause):
    """Proven by scoring the same tokens twice in the same order, in one load of the engine."""

    id = "nondeterminism"
    title = "An engine does not repeat its own log-probabilities"
    remedies = (
        "Disable dropout: put the learner into evaluation mode (`model.eval()`) and set all "
        "dropout rates to 0 when it computes log-probabilities.",
        "If there is no dropout, look for jitter in the router, and for kernels with atomic sums.",
    )
    peels = False
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is a gap; this comes before the order of the batch, which it also changes."""
        return Hypothesis(1.0)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Compare each engine with itself."""
        case, found = experiments.case, {}
        for side, engine in (("learner", case.learner), ("sampler", case.sampler)):
            try:
                one_N, other_N = (
                    experiments.score(engine, case.processing, repeat=number) for number in (1, 2)
                )
            except EngineError:
                continue  # a server, for example, cannot score
            found[side] = difference_gap(one_N, other_N)
        side = max(found, key=lambda name: found[name], default="")
        if not side or found[side] <= max(EXACT, _LEAST * variant.gap):
            return None
        return ExperimentResult(
            summary=(
                f"the {side} scores the same batch twice with a difference of k3 "
                f"{found[side]:.2g} nats per token; the gap is {variant.gap:.2g}"
            ),
            explained=min(1.0, found[side] / variant.gap),
            details=(side,),
            figures={"itself": found[side], "undeclared": 1.0},
        )
