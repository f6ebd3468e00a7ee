"""The sampler's log-probabilities are of a distribution whose tail was cut off."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, Outcome, Scene, Suspicion
from grpodoctor.probe.attribution.bench import Bench
from grpodoctor.probe.attribution.causes.temperature import best_processing
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.lab import Processing

_ONE_SIDED = 0.9
"""Of the tokens that differ at all: renormalising a part of the support only raises it."""
_TELLS = 1e-3
"""|Δlogp| of a token that differs at all."""
_MIN_P = (0.3, 0.2, 0.15, 0.1, 0.05, 0.02, 0.01)


class Truncation(Cause):
    """The learner's ranks, masses and differences say where the cut is; scoring with it proves."""

    id = "truncation"
    title = "Top-p, top-k or min-p renormalises the sampler's probabilities"
    remedies = (
        "Sample from the whole distribution while training: top_p=1, top_k off, min_p=0, and look "
        "for defaults in the model's generation_config.json that the engine takes by itself.",
        "If the cut must stay, give the learner the same cut (the same kept tokens, renormalised), "
        "or take the old log-probabilities from the learner.",
    )
    cost = 0
    least = 0.5

    def suspect(self, bench: Bench, scene: Scene) -> Suspicion | None:
        """Differences of one sign, and whether a cut was asked for."""
        tokens, now = scene.tokens, scene.setup.processing
        if scene.setup.rescored is not None or _cuts(now):
            return None
        below = one_sided(tokens)
        declared = _cuts(Processing.of(bench.case.sampling))
        if below < _ONE_SIDED and not declared:
            return None
        return Suspicion(0.9 if declared else below - 0.1, {"below": below})

    def experiment(self, bench: Bench, scene: Scene, suspicion: Suspicion) -> Outcome | None:
        """Score with the cut that was asked for, and with those that the data suggest."""
        tokens, now = scene.tokens, scene.setup.processing
        at = tokens.finite_N
        candidates = [*_declared(bench, now), *_guessed(tokens, now)]
        if not candidates:
            return None
        after = best_processing(bench, scene, list(dict.fromkeys(candidates)))
        cut = _written(after.setup.processing)
        kept = float(np.exp(np.minimum(tokens.difference_N[at], 0.0)).mean())
        asked = _written(Processing.of(bench.case.sampling))
        below = float(suspicion.facts["below"])
        told = (
            f"the sampler's probabilities are renormalised under {cut}: {below:.0%} of the "
            f"differing tokens are likelier to it, and {kept:.1%} of the mass is kept on average"
        )
        return Outcome(
            told=told if asked else f"{told}; no cut was asked for",
            after=after,
            figures={
                "kept_mass": kept,
                "top_p": after.setup.processing.top_p,
                "top_k": after.setup.processing.top_k,
                "min_p": after.setup.processing.min_p,
            },
        )


def one_sided(tokens: Tokens) -> float:
    """Of the tokens that differ, the share that is likelier to the sampler; 0 if few differ."""
    differing_N = tokens.difference_N[tokens.finite_N & (np.abs(tokens.difference_N) > _TELLS)]
    return float((differing_N < 0).mean()) if differing_N.size >= 20 else 0.0


def _cuts(processing: Processing) -> bool:
    return processing.top_p < 1 or processing.top_k > 0 or processing.min_p > 0


def _declared(bench: Bench, now: Processing) -> list[Processing]:
    asked = Processing.of(bench.case.sampling)
    return [replace(asked, temperature=now.temperature)] if _cuts(asked) else []


def _guessed(tokens: Tokens, now: Processing) -> list[Processing]:
    """Cuts that no sampled token contradicts, the tightest of each kind."""
    at = tokens.finite_N
    guesses: list[Processing] = []
    if tokens.rank_N is not None:
        guesses.append(replace(now, top_k=int(tokens.rank_N[at].max()) + 1))
    # The mass that top-p keeps is p or a little more: its smallest values lie at p.
    kept = float(np.quantile(np.exp(np.minimum(tokens.difference_N[at], 0.0)), 1e-3))
    guesses += [replace(now, top_p=p) for p in {round(kept, 2), round(kept * 20) / 20} if 0 < p < 1]
    if tokens.top_logprob_N is not None:
        ratio = math.exp(float((tokens.learner_N - tokens.top_logprob_N)[at].min()))
        guesses += [replace(now, min_p=p) for p in _MIN_P if p <= ratio * 1.02][:1]
    return guesses


def _written(processing: Processing) -> str:
    parts = []
    if processing.top_p < 1:
        parts.append(f"top_p {processing.top_p:g}")
    if processing.top_k:
        parts.append(f"top_k {processing.top_k}")
    if processing.min_p:
        parts.append(f"min_p {processing.min_p:g}")
    return ", ".join(parts)
