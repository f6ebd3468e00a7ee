"""Tests of a gap: whether it is rounding, and how much of it an experiment removed."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult
from grpodoctor.probe.attribution.edits import inner_edit
from grpodoctor.probe.attribution.exact_responses import (
    ExactResponses,
    closed_responses,
    exact_responses,
    part_share,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.rounding import (
    Rounding,
    of_steps,
    removed_at_agreeing,
    rounding_between,
)
from grpodoctor.probe.attribution.search.refit import refitted
from grpodoctor.probe.attribution.search.selection import (
    CLOSED,
    NEARLY_WHOLE,
    PROVEN,
    WHOLE,
    TriedCause,
    keeps_tokens,
)
from grpodoctor.probe.attribution.tokens import (
    TYPICAL,
    difference_gap,
    significant,
    typical_share,
)
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT, QUIET

_MOST_RISE = 0.1
"""Share by which the mean may rise where the typical token's gap disappears: a second fault of few
tokens stays as it is, and an edit that makes other tokens worse is no cause."""


_ROUND_INPUTS = frozenset(
    {"activation_rounding", "input_saturation", "linear_rounding", "part_products"}
)
"""Edits that round the inputs of layers to 8 bits."""
_FITTED_BIASES = frozenset({"router_bias"})
"""Edits with a number for each expert of each layer, which are never quite those of the engine."""
_ROUND_VALUES = frozenset(
    {
        "cache_scale",
        "kv_cache",
        "kv_saturation",
        "latent_cache",
        "norm_rounding",
        "residual_rounding",
    }
)
"""Edits that round other values of the computation. Weights are rounded once, on both sides to the
same values."""


def _adds(names: Set[str], before: Variant, after: Variant) -> bool:
    """Whether an experiment adds one of some edits, in one phase or in both."""
    known = set(before.setup.edits)
    added = [edit for edit in after.setup.edits if edit not in known]
    return any((inner_edit(edit) or edit)[0] in names for edit in added)


class GapTests:
    """Compares gaps with the rounding of a case, as it is known so far."""

    def __init__(self, experiments: Experiments) -> None:
        self._experiments = experiments
        self.noise: float | None = None
        """k3 of rounding; None if not measured yet."""
        self.rounding: Rounding | None = None
        """The rounding of a precision that the sampler does not report."""

    @property
    def noise_is_usual(self) -> bool:
        """Whether the noise is the usual value of the precision instead of a measurement."""
        if self.noise is None or self.rounding is not None:
            return False
        return self._experiments.rounding.is_usual

    def is_quiet(self, variant: Variant | None) -> bool:
        """Whether a gap is no larger than rounding, as a whole or apart from rounding's flips."""
        if variant is None or not variant.gap > max(EXACT, QUIET * (self.noise or 0.0)):
            return True
        if self.noise is None:
            return False
        rounding = self.rounding or self._experiments.rounding
        return rounding.remains_without_flips(self._experiments.with_routes(variant).tokens)

    def is_settled(self, tried: TriedCause, variant: Variant | None) -> bool:
        """Whether an experiment on a variant reduced a gap above rounding to rounding."""
        before, after = tried.outcome.before or variant, tried.outcome.after
        if before is None or after is None:
            return False
        shown = self.shown_rounding(tried, before, after)
        if shown is not None and (
            after.gap <= QUIET * shown.noise
            or shown.remains_without_flips(self._experiments.with_routes(after).tokens)
        ):
            return True
        return self.is_quiet(after) and (tried.cause.subtle or not self.is_quiet(before))

    def shown_rounding(self, tried: TriedCause, before: Variant, after: Variant) -> Rounding | None:
        """The rounding that a learner in a coarser precision shows; None if it does not fit.

        Two kernels round differently in the same precision, so the coarser learner removes a part
        of the gap only. It moves log-probabilities by random amounts, which fit by half or more
        only if the sampler rounds as it does. If inputs of layers are rounded to 8 bits, errors of
        kernels move values near the middle of two steps to either side. So what a nearly whole
        explanation leaves is such rounding. So is what the errors of kernels leave next to other
        values that both sides round. Biases of routers were fitted to the experts of the responses
        alone, so some of the prompts' tokens still have others.
        """
        if tried.share >= NEARLY_WHOLE and _adds(_ROUND_INPUTS, before, after):
            return Rounding(after.gap)
        if tried.share >= NEARLY_WHOLE and _adds(_ROUND_VALUES, before, after):
            left = of_steps(self.noise or EXACT, before.gap)
            return left if after.gap <= QUIET * left.noise else None
        if tried.share >= 1 - CLOSED and _adds(_FITTED_BIASES, before, after):
            return Rounding(after.gap)
        identity = tried.outcome.identity
        if identity is None or identity.id != "precision" or tried.share < PROVEN:
            return None
        exact, rounded = (self._experiments.with_routes(each).tokens for each in (before, after))
        at = exact.finite_N & rounded.finite_N
        return rounding_between(exact.where(at), rounded) if at.any() else None

    def learn_rounding(self, tried: TriedCause, before: Variant, after: Variant) -> None:
        """Expect the rounding of an accepted precision from now on."""
        shown = self.shown_rounding(tried, before, after)
        if shown is not None and shown.noise > (self.noise or 0.0):
            self.noise, self.rounding = shown.noise, shown

    def removed_share(
        self, cause: Cause, outcome: ExperimentResult, before: Variant, after: Variant
    ) -> float:
        """Share of the gap that an experiment removed.

        If a reference engine imitates a learner, the columns are exchanged: the tokens were drawn
        from the reference's distribution, so most are less likely in the learner, and k3 grows
        exponentially there. Whatever makes the reference less sure then lowers k3. So the gap must
        fall in the direction of the measurement, too.

        A precision flips experts at random in a mixture of experts, so it is judged by the tokens
        that it routes to the same experts.
        """
        share = 1 - after.gap / before.gap if before.gap > 0 else 0.0
        if before.setup.swapped and after.setup.swapped:
            share = min(share, _removed_backwards(before, after))
        if (outcome.identity.id if outcome.identity else cause.id) != "precision":
            return share
        routed = (self._experiments.with_routes(each).tokens for each in (before, after))
        return max(share, removed_at_agreeing(*routed))

    def typical_share(self, before: Variant, after: Variant) -> float:
        """The same for the typical token; 0 if its gap was rounding before."""
        limit = max(EXACT, QUIET * (self.noise or 0.0))
        return typical_share(before.tokens, after.tokens, limit)

    def reaches(self, cause: Cause, before: Variant, after: Variant) -> bool:
        """Whether removing a cause removes enough of the gap in excess of rounding."""
        beyond = max(before.gap - (self.noise or 0.0), 0.0)
        return before.gap - after.gap > cause.least * beyond

    def exact(self, before: Variant, after: Variant) -> ExactResponses | None:
        """The responses that an experiment made equal to rounding, by more than chance."""
        limit = max(EXACT, QUIET * (self.noise or 0.0))
        tries = 1 + self._experiments.edit_passes
        return exact_responses(before.tokens, after.tokens, limit, tries)

    def _with_exact_part(
        self, before: Variant, after: Variant
    ) -> tuple[Variant, ExactResponses | None]:
        """An experiment with the responses that it made equal.

        Its numbers are fitted again to the responses of which it removed nearly all: next to a
        second fault, a number that fits all responses best makes none of them equal.
        """
        limit = max(EXACT, QUIET * (self.noise or 0.0))
        exact = self.exact(before, after)
        if exact is not None or part_share(before.tokens, after.tokens, limit) < TYPICAL:
            return after, exact
        closed_B = closed_responses(before.tokens, after.tokens, limit)
        some = Variant(after.setup, after.tokens.where(closed_B[after.tokens.rows_N]))
        try:
            fitted = refitted(self._experiments, some, before.setup)
        except EngineError:  # the numbers stay as they are
            return after, None
        tokens = replace(fitted.tokens, counted_N=after.tokens.counted_N)
        again = Variant(fitted.setup, tokens)
        exact = self.exact(before, again)
        return (after, None) if exact is None else (again, exact)

    def judged(
        self, cause: Cause, variant: Variant, outcome: ExperimentResult, least: float | None
    ) -> TriedCause | None:
        """A result with the share of the gap that it removes; None if that is too little.

        Raises:
            BudgetSpentError: if the time budget is used up.
        """
        before, after = outcome.before or variant, outcome.after
        if after is None:
            return None
        share, exact = self.removed_share(cause, outcome, before, after), None
        if share < WHOLE:
            after, exact = self._with_exact_part(before, after)
            outcome = replace(outcome, after=after)
            share = self.removed_share(cause, outcome, before, after)
        typical = 0.0 if share >= WHOLE else self.typical_share(before, after)
        is_typical = typical >= TYPICAL and share >= -_MOST_RISE
        reaches = cause.subtle and self.reaches(cause, before, after)
        is_shown = is_typical or exact is not None
        if not (share >= (cause.least if least is None else least) or is_shown or reaches):
            return None
        if not keeps_tokens(before, after):
            return None
        # A gap that disappears is not chance, however few responses had it.
        by_chance = share < WHOLE and not is_shown
        if by_chance and not significant(before.tokens, after.tokens):
            return None
        part = min(1.0, before.gap / variant.gap) if variant.gap > 0 else 1.0
        return TriedCause(cause, outcome, share, part, typical if is_typical else 0.0, exact)


def _removed_backwards(before: Variant, after: Variant) -> float:
    """Share of the gap that an experiment removed, if learner and sampler are exchanged."""
    at_N = before.tokens.finite_N & after.tokens.finite_N
    if not at_N.any():
        return 0.0
    old, new = (
        difference_gap(each.tokens.sampler_N[at_N], each.tokens.learner_N[at_N])
        for each in (before, after)
    )
    return 1 - new / old if old > 0 else 0.0
