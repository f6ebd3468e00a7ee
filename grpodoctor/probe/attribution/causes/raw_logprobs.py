"""The sampler reports the model's own log-probabilities, not those it draws by."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.bench import Bench
from grpodoctor.probe.attribution.causes.temperature import fit, is_raw, rescored_at, vars_of


class RawLogprobs(Cause):
    """The fitted temperature is 1 where another was asked for."""

    id = "raw-logprobs"
    title = "The sampler reports raw log-probabilities, of temperature 1"
    remedies = (
        "Ask the sampler for processed log-probabilities (vLLM: logprobs_mode="
        '"processed_logprobs"), so that they are of the distribution that it draws from.',
        "Or take the old log-probabilities from the learner at the sampling temperature, or sample "
        "at temperature 1.",
    )
    cost = 0
    least = 0.5

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """The fit, if it says temperature 1."""
        fitted = fit(scene)
        if fitted is None or not is_raw(bench, fitted) or fitted.share < self.least / 2:
            return None
        return Suspicion(fitted.share, vars_of(fitted))

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """Score the learner at temperature 1."""
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
