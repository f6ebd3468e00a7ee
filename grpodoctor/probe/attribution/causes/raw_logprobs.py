"""The sampler reports the model's own log-probabilities, not those it draws by."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.causes.temperature import fit, is_raw, rescored_at, vars_of
from grpodoctor.probe.attribution.causes.truncation import cuts, written
from grpodoctor.probe.attribution.causes.wrong_sampler import WrongSampler
from grpodoctor.probe.attribution.experiments import Bench
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

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """The fit, if it says temperature 1; or tokens that fall otherwise than is reported."""
        fitted = fit(scene) if bench.is_loud(scene.gap) else None
        if fitted is not None and is_raw(bench, fitted) and fitted.share >= self.least / 2:
            return Suspicion(fitted.share, vars_of(fitted))
        if not cuts(Processing.of(bench.case.sampling)) or cuts(scene.setup.processing):
            return None
        surplus = WrongSampler().suspect(bench, scene)
        return Suspicion(0.5, {"surplus": surplus.facts["mean"]}) if surplus else None

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """Score the learner at temperature 1; or look whether the tokens fall as under the cut."""
        if "surplus" in suspicion.facts:
            return _uncut(bench, scene, float(suspicion.facts["surplus"]))
        asked = bench.case.sampling.temperature
        drawn = float(suspicion.facts["drawn"])
        says = bench.case.sampler_facts.logprobs
        return Outcome(
            told=(
                f"the sampler drew at temperature {asked:.3g} and reports log-probabilities of "
                f"temperature 1 (it calls them {says}); the learner's are of "
                f"{scene.setup.processing.temperature:.3g}"
            ),
            after=rescored_at(bench, scene, [1.0]),
            figures={"fitted": float(suspicion.facts["reported"]), "drawn": drawn, "asked": asked},
        )


def _uncut(bench: Bench, scene: Scene, surplus: float) -> Outcome | None:
    """Whether the learner under the cut that was asked for is what the tokens are drawn by."""
    asked = Processing.of(bench.case.sampling)
    job = ScoreJob(rollouts=bench.rollouts, processing=asked, want=("entropy",))
    (folder,) = bench.lab.run(scene.setup.learner, [job])
    under = Tokens.read(bench.rollouts, folder)
    inside_N = np.isfinite(under.learner_N)
    if under.surplus_N is None or inside_N.mean() < _INSIDE:
        return None
    left = float(under.surplus_N[inside_N].mean())
    if abs(left) > _GONE * abs(surplus):
        return None
    return Outcome(
        told=(
            f"the sampler drew under {written(asked)} and reports log-probabilities of the whole "
            f"distribution: the mean of log p + entropy of its tokens is {surplus:.3g} nats by "
            f"these, and {left:.2g} under the cut, where 0 is expected"
        ),
        figures={"surplus": surplus, "surplus_cut": left, "inside": float(inside_N.mean())},
    )
