"""One side computes differently only while it reads the prompt, or only while it generates."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.causes.computation.what_if import rivals_of, similar_to
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import IN_PROMPT, IN_RESPONSE
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_search import EditSearch
from grpodoctor.probe.attribution.search.own_scores import differ, own_scores
from grpodoctor.probe.attribution.search.selection import agreement
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described

_CHECK = (
    "Compare the kernels of prefill and decoding: such a setting often reaches only one of both. "
)


class OnePhase(Cause):
    """Proven by a learner that scores along the path of generation, with an edit in one phase."""

    id = "one-phase"
    title = "One side computes differently in one phase"
    remedies = ("Compare the settings of the kernels of prefill and decoding.",)
    least = 0.3
    is_surrogate = True
    repeats = True
    needs_steady = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is a gap above rounding in values that the sampler reported while it generated."""
        setup = variant.setup
        other = setup.rescored or setup.shift or setup.transform or setup.replay or setup.behind
        if other or setup.own_prompts or not setup.learner.kind.can_alter:
            return None
        return Hypothesis(0.35) if experiments.exceeds_rounding(variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Try edits in the phase that the sampler's own scores leave open."""
        own_N = own_scores(experiments, variant)
        phases = [IN_RESPONSE, IN_PROMPT]
        if own_N is not None:
            tokens = variant.tokens
            if not differ(experiments, variant, own_N, tokens.sampler_N):
                return None  # it scores as it generates
            if not differ(experiments, variant, own_N, tokens.learner_N):
                phases, own_N = [IN_RESPONSE], None  # one pass over whole sequences is sound
        families = experiments.what_ifs(variant.setup.learner)
        search = EditSearch(experiments, variant)
        candidates = search.best_in_phase(phases, families, own_N)
        if not candidates:
            return None
        best, cause, side = candidates[0], cause_of(candidates[0].edit), variant.setup.sides[0]
        verb = agreement(variant, best.after)
        return ExperimentResult(
            summary=(
                f"with {described(best.edit)} the {variant.setup.sides[1]} {verb} the {side}: "
                f"k3 falls from {variant.gap:.2g} to {best.after.gap:.2g} nats per token"
            ),
            after=best.after,
            confidence="likely" if rivals_of(best, candidates) else "proven",
            details=(described(best.edit).rstrip(","),),
            figures={"undeclared": 1.0},
            identity=Identity(cause.id, cause.title.format(side=side), (_CHECK + cause.remedy,)),
            rivals=tuple(other.edit for other in similar_to(best, candidates)),
        )
