"""The sampler reports raw log-probabilities instead of those it samples from."""

from __future__ import annotations

import math

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.sampling.processors import RIVAL_NATS, temperature_nats
from grpodoctor.probe.attribution.causes.sampling.temperature import (
    fit,
    fit_facts,
    is_raw,
    rescored_at,
)
from grpodoctor.probe.attribution.causes.sampling.truncation import (
    describe_truncation,
    is_truncated,
)
from grpodoctor.probe.attribution.causes.sampling.wrong_sampler import WrongSampler
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.engines.jobs import ScoreJob

_INSIDE = 0.98
"""Smallest share of tokens within the requested truncation."""
_OUTSIDE = 5.0
"""Nats that a token outside of the truncation counts against it."""
_GONE = 0.25
"""Largest share of the mean of log p + entropy that may remain under the truncation."""


class RawLogprobs(Cause):
    """The reported log-probabilities lack the requested temperature or truncation."""

    id = "raw-logprobs"
    title = "The sampler reports raw log-probabilities, not those it samples from"
    remedies = (
        "Request processed log-probabilities from the sampler (vLLM: logprobs_mode="
        '"processed_logprobs"), so that they belong to the sampled distribution.',
        "Or recompute the old log-probabilities with the learner at the sampling temperature, or "
        "sample at temperature 1.",
    )
    cost = 0
    least = 0.5
    when = "always"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The fit gives temperature 1, or tokens do not follow the reported distribution."""
        fitted = fit(variant) if experiments.exceeds_rounding(variant) else None
        if fitted is not None and is_raw(experiments, fitted) and fitted.share >= self.least / 2:
            return Hypothesis(fitted.share, fit_facts(fitted))
        if not is_truncated(Processing.of(experiments.case.sampling)) or is_truncated(
            variant.setup.processing
        ):
            return None
        surplus_N = variant.tokens.surplus_N
        if surplus_N is None or WrongSampler().hypothesize(experiments, variant) is None:
            return None
        return Hypothesis(0.5, {"surplus": float(surplus_N[variant.tokens.finite_N].mean())})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score at temperature 1, or test whether the tokens follow the truncated distribution."""
        if "surplus" in hypothesis.facts:
            return _truncated_sampling(experiments, variant, float(hypothesis.facts["surplus"]))
        asked = experiments.case.sampling.temperature
        drawn = float(hypothesis.facts["drawn"])
        reported = experiments.case.sampler_facts.logprobs
        return ExperimentResult(
            summary=(
                f"the sampler drew at temperature {asked:.3g} and reports log-probabilities of "
                f"temperature 1 (named {reported}); the learner's have temperature "
                f"{variant.setup.processing.temperature:.3g}"
            ),
            after=rescored_at(experiments, variant, [1.0]),
            figures={"fitted": float(hypothesis.facts["reported"]), "drawn": drawn, "asked": asked},
        )


_TEMPERATURE_FITS = "also fits: tokens that are drawn at another temperature"


def _nats_under(tokens: Tokens, under: Tokens) -> float | None:
    """How much likelier the tokens are under a truncation; None if they are not the same tokens.

    A token outside of it counts as `_OUTSIDE` nats: rounding may have moved it over the border.
    """
    if under.learner_N.size < tokens.learner_N.size:
        return None
    at_N = tokens.drawn_N
    gains_N = (under.learner_N[: at_N.size] - tokens.learner_N)[at_N]
    return float(np.maximum(gains_N, -_OUTSIDE).sum())


def _truncated_sampling(
    experiments: Experiments, variant: Variant, surplus: float
) -> ExperimentResult | None:
    """Test whether the tokens follow the learner under the requested truncation."""
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
    gained = _nats_under(variant.tokens, under)
    rival = temperature_nats(variant.tokens) if gained is not None else math.inf
    is_rival = gained is None or gained - rival < RIVAL_NATS
    return ExperimentResult(
        confidence="likely" if is_rival else "proven",
        details=(_TEMPERATURE_FITS,) if is_rival else (),
        summary=(
            f"the sampler drew under {describe_truncation(asked)} and reports log-probabilities of "
            f"the whole distribution: the mean of log p + entropy is {surplus:.3g} nats as "
            f"reported and {left:.2g} under the truncation, where 0 is expected"
        ),
        figures={"surplus": surplus, "surplus_cut": left, "inside": float(inside_N.mean())},
    )
