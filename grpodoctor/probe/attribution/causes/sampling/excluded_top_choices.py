"""The sampler excludes the likeliest tokens at some steps (XTC)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.columns.top_choices import (
    MOST_EXCLUDED,
    Exclusion,
    above_threshold,
    first_choices,
    thresholds,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, Integers, Tokens
from grpodoctor.probe.attribution.variant import ColumnMap, Variant

_FEWEST = 20
"""Places at which the rule must have acted."""
_SIMILAR = 3.0
"""Another rule that leaves less than this multiple of the best one's gap fits, too."""
_CHANCE = 1e-4
"""Probability that a rule without a threshold acts only where this threshold lets XTC act."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """A rule, and the tokens with it in the learner."""

    threshold: float
    exclusion: Exclusion
    tokens: Tokens


class ExcludedTopChoices(Cause):
    """Proven by the numbers: with the rule at some places, and without it at the others, all agree.

    XTC acts at random, so either value is possible at each place. Both follow from the learner's
    own likeliest tokens and one threshold, which must fit all places. A rule that excludes a fixed
    number of the likeliest tokens is tried as well. If it fits as well, it would also act where
    fewer than two tokens are above the threshold, and the cause is proven only if it never does.
    The choice between two values at each place lowers any gap, so a cause that leaves more than
    rounding is likely at most.
    """

    id = "xtc"
    title = "The sampler excludes the likeliest tokens at some steps (XTC)"
    remedies = (
        "Set xtc_probability to 0 in the sampler: a learner cannot apply XTC, because it acts at "
        "random.",
    )
    cost = 0
    least = 0.7
    is_surrogate = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """One threshold explains most of the gap."""
        setup = variant.setup
        if setup.rescored is not None or setup.shift or setup.transform or setup.swapped:
            return None
        found = _best(variant.tokens)
        if found is None or found.exclusion.acts_N(variant.tokens).sum() < _FEWEST:
            return None
        share = 1 - found.tokens.gap / variant.gap
        return Hypothesis(share, {"threshold": found.threshold}) if share >= self.least else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Exclude the tokens at the places where this is nearer to the sampler's value."""
        tokens, found = variant.tokens, _best(variant.tokens)
        if found is None:
            return None
        acts_N = found.exclusion.acts_N(tokens)
        could_N = found.exclusion.can_act_N & tokens.finite_N
        share = float(acts_N.sum() / could_N.sum())
        rule = f"XTC with threshold {found.threshold:g}"
        added_N = found.exclusion.added_N(tokens)
        setup = replace(
            variant.setup, transform=rule, learner_map=ColumnMap(_adding(added_N), needs_all=True)
        )
        after = Variant(setup, found.tokens)
        rival = _rival(tokens, found, experiments.limit)
        return ExperimentResult(
            summary=(
                f"{rule}, at {share:.0%} of the {could_N.sum()} places where two tokens are that "
                f"likely, brings k3 from {variant.gap:.2g} to {after.gap:.2g} nats per token: the "
                "probability of all these tokens but the least likely one is missing there"
            ),
            after=after,
            confidence="likely" if rival or experiments.is_loud(after.gap) else "proven",
            details=(f"also fits: {rival}",) if rival else (),
            figures={"threshold": found.threshold, "acts": share, "places": float(acts_N.sum())},
            is_exact=True,
        )


def _adding(added_N: Floats) -> Callable[[Integers, Floats], Floats]:
    def change(_lengths_B: Integers, learner_N: Floats) -> Floats:
        return learner_N + added_N

    return change


def _with_rule(tokens: Tokens, exclusion: Exclusion) -> Tokens:
    """The tokens with a rule in the learner where it acts."""
    return replace(tokens, learner_N=tokens.learner_N + exclusion.added_N(tokens))


def _best(tokens: Tokens) -> _Fit | None:
    """The threshold that leaves the smallest gap, the roundest of several."""
    fits = []
    for each in thresholds(tokens):
        exclusion = above_threshold(tokens, each)
        if exclusion is not None:
            fits.append(_Fit(each, exclusion, _with_rule(tokens, exclusion)))
    return min(fits, key=lambda fit: (fit.tokens.gap, len(f"{fit.threshold:g}")), default=None)


def _rival(tokens: Tokens, found: _Fit, limit: float) -> str:
    """Another rule that explains the same places; empty if there is none."""
    for count in range(1, MOST_EXCLUDED + 1):
        other = first_choices(tokens, count)
        if other is None:
            continue
        gap = _with_rule(tokens, other).gap
        if gap > _SIMILAR * max(found.tokens.gap, limit):
            continue
        if not _never_acts_elsewhere(tokens, found.exclusion, other):
            words = "likeliest token" if count == 1 else f"{count} likeliest tokens"
            return f"the {words} excluded at some places"
    return ""


def _never_acts_elsewhere(tokens: Tokens, found: Exclusion, other: Exclusion) -> bool:
    """Whether another rule acts only where this one can, and that is no chance.

    Each place where the other rule acts is one where this one can with the share of such places
    among all whose sampled token the other rule would keep.
    """
    acts_N = other.acts_N(tokens)
    free_N = tokens.finite_N & np.isfinite(other.raised_N)
    share = float((found.can_act_N & free_N).sum() / max(int(free_N.sum()), 1))
    is_within = not (acts_N & ~found.can_act_N).any()
    return is_within and int(acts_N.sum()) * math.log(max(share, 1e-12)) < math.log(_CHANCE)
