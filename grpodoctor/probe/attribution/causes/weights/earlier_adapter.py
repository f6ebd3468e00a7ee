"""The sampler has an earlier LoRA adapter of the learner's run, which was not given."""

from __future__ import annotations

from pathlib import Path

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.weights.adapter import loading_engine
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.inputs.neighbor_checkpoints import earlier_adapters


class EarlierAdapter(Cause):
    """Proven by scoring with an adapter of a lower number next to the learner's."""

    id = "earlier-adapter"
    title = "The sampler has an earlier LoRA adapter of the run"
    remedies = (
        "Load the adapter of the present step into the sampler before every rollout, under a new "
        "name or number: engines keep an adapter whose name they know.",
        "Send the present adapter once and probe again: the gap must disappear.",
    )
    is_surrogate = True
    uses_other_files = True
    least = 0.6

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The learner has an adapter, and its run has saved earlier ones."""
        learner = variant.setup.learner
        if loading_engine(learner) is None or not _found(variant):
            return None
        return Hypothesis(0.57)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score with each of the earlier adapters."""
        learner = loading_engine(variant.setup.learner)
        if learner is None:
            return None
        tried: list[tuple[Variant, Path]] = []
        for folder in _found(variant):
            after = experiments.vary(variant, learner=learner.with_options(adapter=str(folder)))
            note = f"compared with the adapter of {folder.name}, found next to the learner's"
            experiments.found.notes[note] = None
            tried.append((after, folder))
        if not tried:
            return None
        best, folder = min(tried, key=lambda each: each[0].gap)
        return ExperimentResult(
            summary=(
                f"with the adapter of {folder.name}, found next to the learner's, k3 falls from "
                f"{variant.gap:.2g} to {best.gap:.2g} nats per token"
            ),
            after=best,
            details=(folder.name,),
        )


def _found(variant: Variant) -> tuple[Path, ...]:
    """The earlier adapters next to the learner's."""
    adapter = variant.setup.learner.options.get("adapter")
    return earlier_adapters(Path(str(adapter))) if adapter else ()
