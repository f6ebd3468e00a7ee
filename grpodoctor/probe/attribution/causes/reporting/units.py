"""One side reports its log-probabilities in another form: unit, rounding, averages, order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.columns.column_changes import Recognized
from grpodoctor.probe.attribution.columns.transforms import applied, recognized
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT

_HINT = 0.5
"""Smallest share of the gap that a change must remove."""
_TITLES = {
    "log-base": "The {side}'s log-probabilities are not natural logarithms",
    "scaled-logprobs": "The {side}'s log-probabilities are scaled",
    "constant-offset": "The {side}'s log-probabilities differ by one number at every token",
    "likeliest-token": "The {side} reports the likeliest token's log-probability",
    "top-logprobs": "The {side} reports the last value of a list for tokens outside of it",
    "repeated-values": "The {side} repeats one log-probability for several tokens",
    "rounding": "The {side}'s log-probabilities are rounded",
    "storage-precision": "The {side}'s log-probabilities are stored in 16 bits",
    "averaging": "The {side} reports averages instead of each token's log-probability",
    "cumulative": "The {side} reports sums instead of each token's log-probability",
    "clipping": "The {side}'s log-probabilities are clipped",
    "forced-token": "The {side} forces tokens",
    "missing-logprobs": "The {side} reports a number in place of missing log-probabilities",
    "shuffled": "The {side}'s log-probabilities belong to other tokens",
    "off-by-one": "Log-probabilities are shifted against the tokens",
}
_REMEDIES = {
    "log-base": "Multiply the values by the natural logarithm of the base where they are read.",
    "scaled-logprobs": "Remove the factor where the values are read or written.",
    "constant-offset": "Check the normalizer of the log-softmax. log 2, log 4 …: it is summed over "
    "ranks that each have the whole vocabulary (gathered logits in a vocabulary-parallel loss).",
    "likeliest-token": "Look up the sampled token among the returned log-probabilities by its id, "
    "not the first one of the list.",
    "top-logprobs": "Read the sampled token's own log-probability, which engines return next "
    "to the list; or leave such tokens out of the loss.",
    "repeated-values": "Report one value per token where a step accepts several tokens, as in "
    "speculative decoding: slice the values by the number of accepted tokens.",
    "rounding": "Report full float32 values; JSON and log formats often shorten numbers.",
    "storage-precision": "Store log-probabilities in float32.",
    "averaging": "Report one log-probability per token; average only in the loss.",
    "cumulative": "Report differences of the sums, one log-probability per token.",
    "clipping": "Report values without clipping; clip only the importance ratio.",
    "forced-token": "Leave forced tokens (a thinking budget, a forced first or last token) out of "
    "the loss: the sampler draws them whatever the model says.",
    "missing-logprobs": "Hand the values of these tokens on to the engine that answers (prefill "
    "and decode workers, draft and target), or leave the tokens out of the loss.",
    "shuffled": "Keep log-probabilities with their tokens through batching, sorting and gathering.",
    "off-by-one": "Align the columns: the log-probability of the token at position t comes from "
    "the logits at t - 1.",
}


_INEXACT = ("rounding", "storage-precision")
"""Changes that turn a tiny difference into a step, where a value is close to the middle of one."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The change that explains most."""

    change: Recognized
    side: str
    tokens: Tokens


class Units(Cause):
    """Proven by making both columns comparable: with the same change, they agree."""

    id = "units"
    title = "One side's log-probabilities are reported in another form"
    remedies = ("Report one natural log-probability per token in float32.",)
    cost = 0
    least = _HINT
    when = "gap"
    is_surrogate = True
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The numbers of a column suggest a change that explains most of the gap."""
        found = None if variant.setup.transform else _best(variant)
        if found is None:
            return None
        share = 1 - found.tokens.gap / variant.gap
        return Hypothesis(share) if share >= _HINT else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Apply the change."""
        found = _best(variant)
        if found is None:
            return None
        change, side = found.change, found.side
        made = change.map_other if side == variant.setup.sides[0] else change.map_changed
        setup = replace(variant.setup, transform=change.what, learner_map=made)
        after = Variant(setup, found.tokens)
        return ExperimentResult(
            summary=(
                f"the {side}'s log-probabilities are {change.what}: with that taken into account, "
                f"k3 falls from {variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=(side, change.what),
            is_exact=change.cause not in _INEXACT,
            is_conclusive=change.is_conclusive,
            identity=Identity(
                change.cause,
                _TITLES[change.cause].format(side=side),
                (_REMEDIES[change.cause],),
            ),
        )


def _best(variant: Variant) -> _Found | None:
    """The change that leaves the smallest gap; the first of several that leave only rounding."""
    with np.errstate(invalid="ignore"):  # excluded tokens, -inf on both sides, have no difference
        return _best_change(variant)


def _best_change(variant: Variant) -> _Found | None:
    tokens, best = variant.tokens, None
    sides = variant.setup.sides
    for change in recognized(tokens, tokens.sampler_N, tokens.learner_N):
        made = applied(tokens, change.changed_N, change.other_N)
        best = _better(best, _Found(change, sides[0], made), tokens)
    for change in recognized(tokens, tokens.learner_N, tokens.sampler_N):
        made = applied(tokens, change.other_N, change.changed_N)
        best = _better(best, _Found(change, sides[1], made), tokens)
    return best


def _better(best: _Found | None, found: _Found, before: Tokens) -> _Found | None:
    lost = before.finite_N.sum() - found.tokens.finite_N.sum()
    share = 1 - found.tokens.gap / before.gap
    if not share > found.change.least or lost > _LOST * before.finite_N.sum():
        return best
    if best is None:
        return found
    gap, least = (max(each.tokens.gap, EXACT) for each in (found, best))
    # An order of rows can be undone on either side, but the padding is explained on one only.
    keeps_more = (
        found.tokens.finite_N.sum() > best.tokens.finite_N.sum() and _CLEARLY * gap <= least
    )
    return found if gap < _CLEARLY * least or keeps_more else best


_CLEARLY = 0.8
_LOST = 0.5
"""Share of the tokens that a shift may take out of the comparison."""
