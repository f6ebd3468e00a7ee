"""The routers of a mixture of experts choose other experts in the two engines."""

from __future__ import annotations

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Variant
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Flags, Integers, Tokens
from grpodoctor.probe.controls.expert_replay import can_replay

_TIMES = 3.0
"""How many times the gap of tokens routed alike that of the others must be."""
_FEWEST = 20
_LEAST = 0.25
_COVERED = 0.9
"""Share of the tokens whose experts must be told for a replay to judge."""


class RouterFlips(Cause):
    """Seen where tokens that were routed otherwise carry the gap; proven by routing replay."""

    id = "router-flips"
    title = "Routers choose other experts in the two engines"
    remedies = (
        "Replay the sampler's experts in the learner (routing replay), or compute the router in "
        "float32 on both sides.",
        "Or clip and weigh by the sequence (GSPO), which does not feel the flips of single tokens.",
    )
    least = _LEAST

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The share of the gap that tokens with a flip have beyond that of the others."""
        tokens = variant.tokens
        flipped_N = _flipped(tokens)
        if flipped_N is None or (flipped_N & tokens.finite_N).sum() < _FEWEST:
            return None
        told_N = _told(tokens) & tokens.finite_N
        kept = tokens.mean_at(told_N & ~flipped_N)
        off = tokens.mean_at(told_N & flipped_N)
        excess = (
            (off - kept) * (flipped_N & told_N).sum() / max(tokens.terms_N[told_N].sum(), 1e-30)
        )
        if off < _TIMES * kept or excess < _LEAST:
            return None
        # Asked last: flips are how other causes act in a mixture, and stand in for none of them.
        return Hypothesis(0.01, {"times": off / kept if kept > 0 else float("inf")})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Replay the sampler's experts in the learner; failing that, leave flipped tokens out."""
        tokens = variant.tokens
        flipped_N = _flipped(tokens)
        if flipped_N is None:
            return None
        rates_L = _flips(tokens)[_told(tokens)].mean(axis=0)
        worst = np.argsort(-rates_L)[:5]
        rate, times = float(flipped_N[_told(tokens)].mean()), float(hypothesis.facts["times"])
        told = (
            f"{rate:.1%} of the tokens were sent to another expert in some layer; their gap is "
            f"{times:.3g} times that of the others"
        )
        details = tuple(f"layer {layer}: {rates_L[layer]:.1%}" for layer in worst)
        figures = {"flipped": rate, "times": times}
        coverage = float(_told(tokens).mean())
        held = _replayed(experiments, variant) if coverage >= _COVERED else None
        if held is not None:
            # Where it takes little away, other experts are a symptom: of other weights, say.
            closed = 1 - held.gap / variant.gap
            told += f"; with the sampler's experts replayed in the learner {closed:.0%} of it goes"
            figures |= {"coverage": coverage, "replay_closes": closed}
            return ExperimentResult(told=told, after=held, details=details, figures=figures)
        without = Variant(variant.setup, tokens.where(~flipped_N))
        return ExperimentResult(
            told=told, after=without, confidence="likely", details=details, figures=figures
        )


def _replayed(experiments: Experiments, variant: Variant) -> Variant | None:
    """The variant with the sampler's experts at work in the learner; None where it cannot."""
    if not can_replay(variant.setup.learner):
        return None
    try:
        return experiments.vary(variant, replay=True)
    except EngineError:
        return None


def _flips(tokens: Tokens) -> Flags:
    """(N, L): whether the set of experts is another one."""
    one, other = tokens.sampler_experts_NLK, tokens.learner_experts_NLK
    if one is None or other is None:
        raise ValueError("the experts of one side are not told")
    return np.asarray((np.sort(one, axis=-1) != np.sort(other, axis=-1)).any(axis=-1))


def _told(tokens: Tokens) -> Flags:
    one, other = tokens.sampler_experts_NLK, tokens.learner_experts_NLK
    if one is None or other is None or one.shape != other.shape:
        return np.zeros(tokens.sampler_N.size, np.bool_)
    return np.asarray(((one >= 0) & (other >= 0)).all(axis=(1, 2)))


def _flipped(tokens: Tokens) -> Flags | None:
    """Whether a token was routed otherwise in any layer; None if the engines do not tell."""
    told_N = _told(tokens)
    if not told_N.any():
        return None
    return np.asarray(_flips(tokens).any(axis=1) & told_N)


def steady(tokens: Tokens) -> Flags:
    """Tokens before which nothing of their response was routed otherwise, as far as is told."""
    flipped_N = _flipped(tokens)
    if flipped_N is None:
        return np.ones(tokens.sampler_N.size, np.bool_)
    before_N: Integers = np.cumsum(flipped_N) - flipped_N
    return np.asarray(before_N == before_N[tokens.starts_B[tokens.rows_N]]) & ~flipped_N
