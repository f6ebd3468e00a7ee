"""Tokens are computed by the experts that belong to other tokens or layers."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.selection import agreement
from grpodoctor.probe.attribution.tokens import Experts, Tokens
from grpodoctor.probe.attribution.variant import Variant

EXPERTS_SHIFTED = "experts_shifted"
_TITLE = "The {side} computes tokens with the experts of other tokens"
_SHIFTS = (1, -1, 2, -2, 3, -3)
"""Tokens by which recorded experts may be misplaced."""
_LAYERS = (1, 2)
_AGREE = 0.9
"""Share of the tokens with the same experts as the shifted ones, in some layer."""
_TIMES = 2.0
"""How many times as many these are as tokens with the same experts in place."""
_FEWEST = 64


@dataclass(frozen=True, slots=True)
class Shifted:
    """How far the experts of one side are shifted against those of the other side."""

    axis: str
    """`token` or `layer`."""
    far: int
    share: float
    """Share of the tokens with the same experts as the shifted ones, in the best layer."""
    in_place: float
    """The same without a shift, in that layer."""


class ExpertReplay(Cause):
    """The reported experts show it; proven by a learner that shifts its experts alike.

    In a healthy pair nearly all tokens have the same experts on both sides. If the experts of one
    side are those that the other chose for the token before, they were recorded or replayed at
    wrong places. Later layers agree less if their routers choose from what the wrong experts
    computed, so the layer that agrees most counts.
    """

    id = "expert-replay"
    title = "One side computes tokens with the experts of other tokens"
    remedies = (
        "Check the offsets of the experts that are replayed: the ids of a prompt's tokens, the "
        "shift between a token and its prediction, padding, packed sequences and the shards of a "
        "sequence must be counted alike in both engines.",
        "Compare the experts of one response layer by layer on both sides, or switch routing "
        "replay off until they agree.",
    )
    is_surrogate = True
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The experts of one side are those of neighboring tokens of the other side."""
        used = any(name == EXPERTS_SHIFTED for name, _ in variant.setup.edits)
        if used or variant.setup.replay or not variant.setup.learner.kind.can_alter:
            return None
        found = shift_of(experiments.with_routes(variant).tokens)
        if found is None:
            return None
        facts: dict[str, float | str] = {"axis": found.axis, "far": found.far}
        return Hypothesis(0.95, facts | {"share": found.share, "in_place": found.in_place})

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Shift the learner's experts."""
        axis, far = str(hypothesis.facts["axis"]), int(hypothesis.facts["far"])
        edit = (EXPERTS_SHIFTED, json.dumps(f"{axis}:{far}"))
        after = experiments.vary(variant, edits=(*variant.setup.edits, edit))
        side, other = variant.setup.sides
        who = "a reference engine" if variant.setup.swapped else f"the {other}"
        place = f"{abs(far)} {axis}{'s' if abs(far) > 1 else ''} {'before' if far > 0 else 'after'}"
        share, in_place = (float(hypothesis.facts[name]) for name in ("share", "in_place"))
        verb = agreement(variant, after)
        return ExperimentResult(
            summary=(
                f"{share:.0%} of the {side}'s tokens have the experts of the {other}'s token "
                f"{place}, and {in_place:.0%} those of the same token; with experts shifted so, "
                f"{who} {verb} the {side}: k3 falls from {variant.gap:.2g} to {after.gap:.2g} nats "
                "per token"
            ),
            after=after,
            details=(f"experts of {place}",),
            figures={"shifted": share, "in_place": in_place},
            identity=Identity(self.id, _TITLE.format(side=side), self.remedies),
        )


def shift_of(tokens: Tokens) -> Shifted | None:
    """The shift under which the sampler's experts are the learner's; None if there is none."""
    one, other = tokens.sampler_experts_NLK, tokens.learner_experts_NLK
    if one is None or other is None or one.shape != other.shape:
        return None
    known_N = tokens.routed_N & tokens.finite_N
    if known_N.sum() < _FEWEST:
        return None
    one, other = np.sort(one, axis=2), np.sort(other, axis=2)
    in_place_L = _agreement(one[known_N], other[known_N])
    found = [
        shifted
        for far in _SHIFTS
        if (shifted := _token_shift(tokens, one, other, in_place_L, far)) is not None
    ]
    for far in _LAYERS:
        if far < one.shape[1]:
            shares = _agreement(one[known_N][:, far:], other[known_N][:, :-far])
            found += _shifted("layer", far, shares, in_place_L[far:])
    return max(found, key=lambda each: each.share, default=None)


def _token_shift(
    tokens: Tokens, one: Experts, other: Experts, in_place_L: np.ndarray, far: int
) -> Shifted | None:
    at_N = np.arange(tokens.sampler_N.size)
    source_N = at_N - far
    inside_N = (source_N >= 0) & (source_N < at_N.size)
    source_N = np.clip(source_N, 0, at_N.size - 1)
    known_N = tokens.routed_N & tokens.finite_N
    wanted_N = known_N & inside_N & known_N[source_N]
    wanted_N &= tokens.rows_N == tokens.rows_N[source_N]
    if wanted_N.sum() < _FEWEST:
        return None
    shares = _agreement(one[wanted_N], other[source_N[wanted_N]])
    return next(iter(_shifted("token", far, shares, in_place_L)), None)


def _shifted(axis: str, far: int, shares_L: np.ndarray, in_place_L: np.ndarray) -> list[Shifted]:
    """The shift, if the layer that agrees most agrees much better than without it."""
    layer = int(np.argmax(shares_L))
    share, in_place = float(shares_L[layer]), float(in_place_L[layer])
    fits = share >= _AGREE and share >= _TIMES * in_place
    return [Shifted(axis, far, share, in_place)] if fits else []


def _agreement(one_NLK: Experts, other_NLK: Experts) -> np.ndarray:
    """Share of the tokens with the same experts, by layer."""
    return np.asarray((one_NLK == other_NLK).all(axis=2).mean(axis=0))
