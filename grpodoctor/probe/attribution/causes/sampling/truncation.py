"""The sampler's log-probabilities belong to a truncated distribution."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.sampling.temperature import (
    best_processing,
    fit_truncated,
    learner_at,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.refit import refitted
from grpodoctor.probe.attribution.tokens import Floats, Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.contract import Processing

_ONE_SIDED = 0.9
"""Smallest share of one sign among differing tokens: renormalization only raises values."""
_TELLS = 1e-3
"""Smallest |Δlogp| of a differing token."""
_LOST = 6.0
"""Smallest deficit of the learner's mass on the sampled support, in standard errors."""
_USUAL_P = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 0.97, 0.98, 0.99)
_USUAL_K = (2, 3, 4, 5, 8, 10, 16, 20, 32, 40, 50, 64, 100)
_USUAL_MIN = (0.3, 0.2, 0.15, 0.1, 0.08, 0.05, 0.03, 0.02, 0.01)
_INSIDE = 0.985
"""Share of tokens that must lie within a truncation."""
_MOST_OF_A_KIND = 4
_OTHER = 0.05
"""Relative difference from which a second temperature is tried."""


class Truncation(Cause):
    """Estimated from the learner's ranks, masses and differences; proven by scoring with it."""

    id = "truncation"
    title = "Top-p, top-k or min-p renormalizes the sampler's probabilities"
    remedies = (
        "Sample from the whole distribution during training: top_p=1, top_k off, min_p=0. Check "
        "for defaults in the model's generation_config.json that the engine applies.",
        "If the truncation must stay, apply it in the learner too (the same kept tokens, "
        "renormalized), or recompute the old log-probabilities with the learner.",
    )
    is_surrogate = True
    cost = 0
    least = 0.5
    subtle = True
    when = "gap"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Differences have one sign, mass is missing, or truncation was requested."""
        tokens, now = variant.tokens, variant.setup.processing
        if variant.setup.rescored is not None or variant.setup.shift:
            return None
        if is_truncated(now) and now != experiments.case.processing:
            return None  # a truncation that was found already
        below = one_sided(tokens)
        declared = bool(_declared(experiments, now))
        if below < _ONE_SIDED and lost_mass(tokens) < _LOST and not declared:
            return None
        return Hypothesis(0.9 if declared else max(below - 0.1, 0.3), {"below": below})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Score with the requested truncation, or else with those that the data suggest."""
        tokens, now = variant.tokens, variant.setup.processing
        at = tokens.finite_N
        candidates = _declared(experiments, now)
        after = best_processing(experiments, variant, candidates) if candidates else None
        if after is None or experiments.exceeds_rounding(after):
            candidates += [
                cut
                for each in _temperatures_to_try(variant)
                for cut in guessed(tokens, each, learner_at(tokens, now, each.temperature))
            ]
            if not candidates:
                return None
            after = best_processing(experiments, variant, list(dict.fromkeys(candidates)))
            if experiments.exceeds_rounding(after) and after.gap < self.least * variant.gap:
                after = refitted(experiments, after, variant.setup)  # the guesses are round numbers
        cut = describe_truncation(after.setup.processing)
        kept = float(np.exp(np.minimum(tokens.difference_N[at], 0.0)).mean())
        asked = describe_truncation(Processing.of(experiments.case.sampling))
        below = float(hypothesis.facts["below"])
        summary = (
            f"the sampler's probabilities are renormalized under {cut}: {below:.0%} of the "
            f"differing tokens have a higher probability there, and {kept:.1%} of the mass is kept "
            "on average"
        )
        temperature = after.setup.processing.temperature
        if temperature != now.temperature:
            summary += f"; they have temperature {temperature:.3g}, the learner's "
            summary += f"{now.temperature:.3g}"
        return ExperimentResult(
            summary=summary if asked else f"{summary}; no truncation was requested",
            after=after,
            figures={
                "kept_mass": kept,
                "top_p": after.setup.processing.top_p,
                "top_k": after.setup.processing.top_k,
                "min_p": after.setup.processing.min_p,
                "temperature": temperature,
            },
        )


def one_sided(tokens: Tokens) -> float:
    """Share of differing tokens with a higher probability in the sampler; 0 if few differ."""
    differing_N = tokens.difference_N[tokens.finite_N & (np.abs(tokens.difference_N) > _TELLS)]
    return float((differing_N < 0).mean()) if differing_N.size >= 20 else 0.0


def lost_mass(tokens: Tokens) -> float:
    """Standard errors by which the mean of p / p' over tokens drawn from p' falls short of 1.

    The mean is the learner's mass on the sampler's support, independent of other differences. It is
    1 without truncation. Each response counts once, because its tokens are correlated.
    """
    at = tokens.finite_N
    short_N = np.where(at, 1 - np.exp(np.clip(tokens.difference_N, -5.0, 5.0)), 0.0)
    short_B = np.bincount(tokens.rows_N, weights=short_N, minlength=tokens.lengths_B.size)
    error = float(short_B.std()) * math.sqrt(short_B.size)
    return float(short_B.sum()) / error if error > 0 else 0.0


def is_truncated(processing: Processing) -> bool:
    """Whether the distribution is truncated."""
    return processing.top_p < 1 or processing.top_k > 0 or processing.min_p > 0


def _declared(experiments: Experiments, now: Processing) -> list[Processing]:
    """The requested truncation, at the learner's and at the requested temperature."""
    asked = Processing.of(experiments.case.sampling)
    if not is_truncated(asked):
        return []
    both = [replace(asked, temperature=now.temperature), asked]
    return [each for each in dict.fromkeys(both) if each != now]


def _temperatures_to_try(variant: Variant) -> list[Processing]:
    """The learner's processing, and the same with the temperature fitted under truncation."""
    now = variant.setup.processing
    fitted = fit_truncated(variant)
    if fitted is None or abs(fitted / now.temperature - 1) < _OTHER:
        return [now]
    return [now, replace(now, temperature=round(fitted * 20) / 20)]


def guessed(tokens: Tokens, now: Processing, learner_N: Floats) -> list[Processing]:
    """Truncations that no sampled token contradicts, tightest first.

    Args:
        tokens: of the variant.
        now: the processing without them.
        learner_N: the learner's log-probabilities at its temperature.
    """
    at = tokens.finite_N
    guesses: list[Processing] = []
    if tokens.rank_N is not None:
        # Rounding occasionally moves a token over the border.
        least, most = (int(np.quantile(tokens.rank_N[at], q)) + 1 for q in (_INSIDE, 1.0))
        sizes = [most, *(k for k in _USUAL_K if k >= least and k != most)]
        near = [now.top_k - 1, now.top_k + 1] if now.top_k > 1 else []  # miscounted
        guesses += [replace(now, top_k=k) for k in (*near, *sizes[:_MOST_OF_A_KIND])]
    # Top-p keeps the mass p or slightly more, so the smallest kept mass is close to p.
    kept_N = np.exp(np.minimum((learner_N - tokens.sampler_N)[at], 0.0))
    low, high = (float(np.quantile(kept_N, q)) for q in (1e-3, 0.1))
    usual = [p for p in _USUAL_P if low - 0.02 <= p <= high + 0.02]
    exact = [round(low, 2), round(low * 20) / 20]
    masses = [p for p in (*exact, *usual[:_MOST_OF_A_KIND]) if 0 < p < 1]
    guesses += [replace(now, top_p=p) for p in dict.fromkeys(masses)]
    if tokens.top_logprob_N is not None:
        ratio = math.exp(float((tokens.learner_N - tokens.top_logprob_N)[at].min()))
        ratio **= 1 / now.temperature  # reported at the learner's temperature
        floors = [float(f"{ratio:.1g}"), *(p for p in _USUAL_MIN if p <= ratio * 1.02)][:3]
        guesses += [replace(now, min_p=p) for p in floors if 0 < p < 1]
    return guesses


def describe_truncation(processing: Processing) -> str:
    """The truncation in words; empty if there is none."""
    parts = []
    if processing.top_p < 1:
        parts.append(f"top_p {processing.top_p:g}")
    if processing.top_k:
        parts.append(f"top_k {processing.top_k}")
    if processing.min_p:
        parts.append(f"min_p {processing.min_p:g}")
    return ", ".join(parts)
