"""The sampler reports the model's own log-probabilities, not those it draws by."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.causes.temperature import fit, is_raw, rescored_at, vars_of
from grpodoctor.probe.attribution.causes.truncation import cuts, written
from grpodoctor.probe.attribution.causes.wrong_sampler import WrongSampler
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.engines.jobs import Processing, ScoreJob

_INSIDE = 0.98
"""Of the tokens, which must lie within the cut that was asked for."""
_GONE = 0.25
"""Of the surplus of log p + entropy: what may be left of it under the cut."""


class RawLogprobs(Cause):
    """The fitted temperature is 1 where another was asked for; or what is told has not the cut."""

    id = "raw-logprobs"
    title = "The sampler reports raw log-probabilities, not those it draws by"
    remedies = (
        "Ask the sampler for processed log-probabilities (vLLM: logprobs_mode="
        '"processed_logprobs"), so that they are of the distribution that it draws from.',
        "Or take the old log-probabilities from the learner at the sampling temperature, or sample "
        "at temperature 1.",
    )
    cost = 0
    least = 0.5
    when = "always"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The fit, if it says temperature 1; or tokens that fall otherwise than is reported."""
        fitted = fit(variant) if experiments.is_loud(variant.gap) else None
        if fitted is not None and is_raw(experiments, fitted) and fitted.share >= self.least / 2:
            return Hypothesis(fitted.share, vars_of(fitted))
        if not cuts(Processing.of(experiments.case.sampling)) or cuts(variant.setup.processing):
            return None
        surplus = WrongSampler().hypothesize(experiments, variant)
        return Hypothesis(0.5, {"surplus": surplus.facts["mean"]}) if surplus else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score the learner at temperature 1; or look whether the tokens fall as under the cut."""
        if "surplus" in hypothesis.facts:
            return _uncut(experiments, variant, float(hypothesis.facts["surplus"]))
        asked = experiments.case.sampling.temperature
        drawn = float(hypothesis.facts["drawn"])
        says = experiments.case.sampler_facts.logprobs
        return ExperimentResult(
            told=(
                f"the sampler drew at temperature {asked:.3g} and reports log-probabilities of "
                f"temperature 1 (it calls them {says}); the learner's are of "
                f"{variant.setup.processing.temperature:.3g}"
            ),
            after=rescored_at(experiments, variant, [1.0]),
            figures={"fitted": float(hypothesis.facts["reported"]), "drawn": drawn, "asked": asked},
        )


def _uncut(experiments: Experiments, variant: Variant, surplus: float) -> ExperimentResult | None:
    """Whether the learner under the cut that was asked for is what the tokens are drawn by."""
    asked = Processing.of(experiments.case.sampling)
    job = ScoreJob(rollouts=experiments.rollouts, processing=asked, want=("entropy",))
    (folder,) = experiments.runner.run(variant.setup.learner, [job])
    under = Tokens.read(experiments.rollouts, folder)
    inside_N = np.isfinite(under.learner_N)
    if under.surplus_N is None or inside_N.mean() < _INSIDE:
        return None
    left = float(under.surplus_N[inside_N].mean())
    if abs(left) > _GONE * abs(surplus):
        return None
    return ExperimentResult(
        told=(
            f"the sampler drew under {written(asked)} and reports log-probabilities of the whole "
            f"distribution: the mean of log p + entropy of its tokens is {surplus:.3g} nats by "
            f"these, and {left:.2g} under the cut, where 0 is expected"
        ),
        figures={"surplus": surplus, "surplus_cut": left, "inside": float(inside_N.mean())},
    )
