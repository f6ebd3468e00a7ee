"""The routers of a mixture of experts choose different experts in the two engines."""

from __future__ import annotations

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant

_TIMES = 3.0
"""Smallest ratio of the gap of flipped tokens to the gap of other tokens."""
_FEWEST = 20
_LEAST = 0.25
_COVERED = 0.9
"""Smallest share of tokens with known experts for which a replay decides."""


class RouterFlips(Cause):
    """Detected when tokens with flipped experts carry the gap; proven by routing replay."""

    id = "router-flips"
    title = "Routers choose different experts in the two engines"
    remedies = (
        "Replay the sampler's experts in the learner (routing replay), or compute the router in "
        "float32 on both sides.",
        "Or use sequence-level ratios and clipping (GSPO), which flips of single tokens barely "
        "affect.",
    )
    least = _LEAST

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Tokens with flipped experts have a larger gap than the others."""
        tokens = variant.tokens
        flipped_N = tokens.flipped_N
        if (flipped_N & tokens.finite_N).sum() < _FEWEST:
            return None
        if experiments.rounding.flips_in(tokens):  # rounding flips as many, and as far
            return None
        known_N = tokens.routed_N & tokens.finite_N
        kept = tokens.mean_at(known_N & ~flipped_N)
        off = tokens.mean_at(known_N & flipped_N)
        excess = (
            (off - kept) * (flipped_N & known_N).sum() / max(tokens.terms_N[known_N].sum(), 1e-30)
        )
        if off < _TIMES * kept or excess < _LEAST:
            return None
        # Examined last: other causes act through flips, and a flip must not replace them.
        return Hypothesis(0.01, {"times": off / kept if kept > 0 else float("inf")})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Replay the sampler's experts in the learner, or else exclude flipped tokens."""
        tokens = variant.tokens
        flipped_N, known_N = tokens.flipped_N, tokens.routed_N
        rates_L = tokens.flips_NL[known_N].mean(axis=0)
        worst = np.argsort(-rates_L)[:5]
        rate, times = float(flipped_N[known_N].mean()), float(hypothesis.facts["times"])
        summary = (
            f"{rate:.1%} of the tokens were routed to different experts in some layer; their gap "
            f"is {times:.3g} times that of the others"
        )
        details = tuple(f"layer {layer}: {rates_L[layer]:.1%}" for layer in worst)
        figures = {"flipped": rate, "times": times}
        coverage = float(known_N.mean())
        held = _replayed(experiments, variant) if coverage >= _COVERED else None
        if held is not None:
            # If replay removes little, flips are a symptom, for example of different weights.
            closed = 1 - held.gap / variant.gap
            summary += (
                f"; replaying the sampler's experts in the learner removes {closed:.0%} of it"
            )
            figures |= {"coverage": coverage, "replay_closes": closed}
            return ExperimentResult(summary=summary, after=held, details=details, figures=figures)
        if _follow_from_generation(experiments, variant):
            return None
        without = Variant(variant.setup, tokens.where(~flipped_N))
        return ExperimentResult(
            summary=summary, after=without, confidence="likely", details=details, figures=figures
        )


def _replayed(experiments: Experiments, variant: Variant) -> Variant | None:
    """The variant with the sampler's experts in the learner; None if the learner cannot replay."""
    if not variant.setup.learner.kind.can_replay:
        return None
    try:
        return experiments.vary(variant, replay=True)
    except EngineError:
        return None


def _follow_from_generation(experiments: Experiments, variant: Variant) -> bool:
    """Whether the sampler's scores of its own tokens agree: flips then follow from another cause.

    Only excluding the flipped tokens needs this test; a replay shows what the flips carry.
    """
    if variant.setup.rescored is not None:
        return False
    try:
        after = experiments.vary(variant, rescored=experiments.case.sampler)
    except EngineError:
        return False  # the sampler cannot score
    return not experiments.is_loud(after.gap)
