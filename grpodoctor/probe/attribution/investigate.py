"""Attribution: find the largest cause of a gap, remove it, and continue with the remaining gap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.case import Attribution, Case
from grpodoctor.probe.attribution.catalogue import all_causes
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.reference import with_reference
from grpodoctor.probe.attribution.rounding import (
    Rounding,
    removed_at_agreeing,
    rounding_between,
)
from grpodoctor.probe.attribution.search.refit import fitted_numbers, refitted
from grpodoctor.probe.attribution.search.selection import (
    CLOSED,
    PROVEN,
    WHOLE,
    WORTH_NAMING,
    Step,
    TriedCause,
    enough_share,
    is_sure,
    is_worth_accepting,
    keeps_tokens,
    unneeded,
)
from grpodoctor.probe.attribution.search.subsets import Subset, early_tokens, subset_of
from grpodoctor.probe.attribution.tokens import significant
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.verdict import verdict_of
from grpodoctor.probe.engines.jobs import BudgetSpentError, JobRunner
from grpodoctor.probe.results.results import Confidence, NamedCause
from grpodoctor.probe.severity import EXACT, QUIET

_MOST_CAUSES = 6


def attribute(runner: JobRunner, case: Case) -> tuple[NamedCause, ...]:
    """The causes of a case's gap, the largest share first.

    Empty if there is nothing to explain. If the budget runs out, the causes found so far.

    Raises:
        EngineError: if the shards of the measurement cannot be read.
    """
    return investigate(runner, case).causes


def investigate(runner: JobRunner, case: Case) -> Attribution:
    """The causes of a case's gap, with the verdict, the noise and the experiments not run.

    Raises:
        EngineError: if the shards of the measurement cannot be read.
    """
    return _Investigation(runner, case).result()


@dataclass(frozen=True, slots=True)
class _SavedState:
    """The state of an investigation before it accepted the first edit."""

    named: tuple[NamedCause, ...]
    taken: frozenset[str]
    imitated: frozenset[str]
    steps: tuple[Step, ...]
    left: float
    variant: Variant


class _Investigation:
    """The state of one investigation."""

    def __init__(self, runner: JobRunner, case: Case) -> None:
        self.experiments = Experiments(runner, case)
        self.named: list[NamedCause] = []
        self.notes: list[str] = []
        self.left = 1.0
        """Share of the gap that is not yet explained."""
        self.first: Variant | None = None
        self.variant: Variant | None = None
        self.noise: float | None = None
        self.rounding: Rounding | None = None
        """The rounding of a precision that the sampler does not report."""
        self.imitated: set[str] = set()
        """Ids of named causes whose experiment imitates the cause."""
        self.steps: list[Step] = []
        """The accepted causes, in the order of their removal."""
        self.before_edits: _SavedState | None = None
        """The state to return to if the edits are withdrawn."""
        self.tries_edits = True
        self.subset: Subset | None = None
        """The responses to which the search is limited, if only some differ."""

    def result(self) -> Attribution:
        is_cut_short = False
        try:
            self._investigate()
        except BudgetSpentError:
            is_cut_short = True
            self.notes.append("the time budget ended before all experiments were run")
            self._guess_from_checksums()
        causes = tuple(sorted(self.named, key=_rank))
        gap = self.first.gap if self.first else math.nan
        attribution = Attribution(
            causes=causes,
            verdict="",
            gap=gap,
            noise=self.noise,
            left=None if self._is_quiet(self.first) and not causes else max(0.0, self.left),
            notes=tuple(dict.fromkeys(self.notes)),
            subset=self.subset.words if self.subset else "",
            flips=self.experiments.left_out,
        )
        quiet = self._is_quiet(self.variant)
        return verdict_of(
            self.experiments.case, attribution, quiet=quiet, is_cut_short=is_cut_short
        )

    def _investigate(self) -> None:
        self.first = self.variant = self.experiments.first()
        if self.first.gap > EXACT:
            self.noise = self.experiments.noise
            excess = self.experiments.rounding.excess_flips(self.first.tokens)
            self.notes += [excess] if excess else []
        if self.first.gap > max(EXACT, QUIET * (self.noise or 0.0)):
            self.first = self.variant = self._without_rounding_flips(self.first)
        if not self._is_quiet(self.first):
            self.variant = self._with_reference(self.first)
            self._search_subset(self.variant)
        self._search()
        self._drop_unneeded(self.variant)
        self._examine_remainder()

    def _without_rounding_flips(self, variant: Variant) -> Variant:
        """The tokens before the first flip of a response, if rounding explains the flips."""
        variant = self.experiments.with_routes(variant)
        flips = self.experiments.rounding.flips_in(variant.tokens)
        if flips is None:
            return variant
        self.experiments.left_out, self.noise = flips, flips.noise
        return Variant(variant.setup, variant.tokens.where(flips.steady_N))

    def _search(self) -> None:
        """Accept causes until none explains the rest."""
        self.tries_edits, self.before_edits = True, None
        self._accept_causes()
        if self._withdraw_edits():
            self.tries_edits = False
            self._accept_causes()

    def _accept_causes(self) -> None:
        while self.variant is not None and len(self.named) < _MOST_CAUSES:
            if not self._round(self.variant):
                return

    def _withdraw_edits(self) -> bool:
        """Withdraw edits that together with all later causes leave much of the gap.

        The best of a hundred edits imitates a part of any gap, such as that of other weights. Two
        faults can each leave a part; together they leave next to nothing.
        """
        saved = self.before_edits
        if saved is None or self.variant is None or self._is_quiet(self.variant):
            return False
        if self.variant.gap <= (1 - WHOLE) * saved.variant.gap:
            return False
        self.named, self.steps = list(saved.named), list(saved.steps)
        self.left, self.variant = saved.left, saved.variant
        self.imitated, self.experiments.named = set(saved.imitated), set(saved.taken)
        return True

    def _save(self, variant: Variant) -> None:
        self.before_edits = _SavedState(
            named=tuple(self.named),
            taken=frozenset(self.experiments.named),
            imitated=frozenset(self.imitated),
            steps=tuple(self.steps),
            left=self.left,
            variant=variant,
        )

    def _search_subset(self, variant: Variant) -> None:
        """Continue with the responses or tokens that differ, if a cause is found for them."""
        self.subset = subset_of(self.experiments, variant) or early_tokens(
            self.experiments, variant
        )
        if self.subset is None:
            return
        self.variant = Variant(variant.setup, variant.tokens.where(self.subset.tokens_N))
        self._search()
        if not self.steps:  # the responses themselves are reported
            self.subset, self.variant = None, variant

    def _drop_unneeded(self, variant: Variant) -> None:
        """Drop causes that the later ones make superfluous."""
        try:
            dropped, self.variant = unneeded(self.experiments, variant, self.steps)
        except EngineError as error:
            self.notes.append(f"the causes were not tested against each other: {error.what}")
            return
        self.named = [each for each in self.named if each.cause not in dropped]
        self.experiments.named.difference_update(dropped)

    def _with_reference(self, variant: Variant) -> Variant:
        """The variant with an engine that can compute differently, if the learner cannot."""
        try:
            return with_reference(self.experiments, variant)
        except EngineError as error:
            self.notes.append(f"a reference engine could not score: {error.what}")
            return variant

    def _is_quiet(self, variant: Variant | None) -> bool:
        """Whether a gap is no larger than rounding, as a whole or apart from rounding's flips."""
        if variant is None or not variant.gap > max(EXACT, QUIET * (self.noise or 0.0)):
            return True
        if self.noise is None:
            return False
        rounding = self.rounding or self.experiments.rounding
        return rounding.remains_without_flips(self.experiments.with_routes(variant).tokens)

    def _round(self, variant: Variant) -> bool:
        """Remove the cause that explains most; False if no experiment explains the gap."""
        best: TriedCause | None = None
        for cause, hypothesis in self._hypotheses(variant, peels=True):
            if cause.repeats and best and best.cause.uses_other_files:
                continue
            tried = self._try(cause, variant, hypothesis)
            if tried and (best is None or tried.explained > best.explained):
                best = tried
            if best and (best.explained >= enough_share(best.cause) or self._settled(best)):
                break
        if best is None:
            return False
        best = self._fitted_again(best)
        is_worth = is_worth_accepting(
            best.explained,
            left=self.left,
            is_settled=self._settled(best),
            has_imitated=bool(self.imitated),
            is_first=not self.steps,
        )
        if is_worth:
            self._accept(best)
        return is_worth

    def _settled(self, tried: TriedCause) -> bool:
        """Whether the experiment reduced a gap above rounding to rounding."""
        before, after = tried.outcome.before or self.variant, tried.outcome.after
        if before is None or after is None:
            return False
        shown = self._shown_rounding(tried, before, after)
        if shown is not None and (
            after.gap <= QUIET * shown.noise
            or shown.remains_without_flips(self.experiments.with_routes(after).tokens)
        ):
            return True
        return self._is_quiet(after) and (tried.cause.subtle or not self._is_quiet(before))

    def _shown_rounding(
        self, tried: TriedCause, before: Variant, after: Variant
    ) -> Rounding | None:
        """The rounding that a learner in a coarser precision shows; None if it does not fit.

        Two kernels round differently in the same precision, so the coarser learner removes a part
        of the gap only. It moves log-probabilities by random amounts, which fit by half or more
        only if the sampler rounds as it does.
        """
        identity = tried.outcome.identity
        if identity is None or identity.id != "precision" or tried.share < PROVEN:
            return None
        exact, rounded = (self.experiments.with_routes(each).tokens for each in (before, after))
        at = exact.finite_N & rounded.finite_N
        return rounding_between(exact.where(at), rounded) if at.any() else None

    def _hypotheses(self, variant: Variant, *, peels: bool) -> Iterator[tuple[Cause, Hypothesis]]:
        """The causes to examine, strongest first, arithmetic before engines."""
        taken = self.experiments.named
        quiet = self._is_quiet(variant)
        candidates = []
        for cause in all_causes():
            if cause.peels != peels or (cause.id in taken and not cause.repeats):
                continue
            if cause.repeats and not self.tries_edits:
                continue
            if not _is_relevant(cause, variant, quiet=quiet):
                continue
            if variant.setup.swapped and not cause.is_symmetric:
                continue
            hypothesis = cause.hypothesize(self.experiments, variant)
            if hypothesis is not None:
                candidates.append((cause, hypothesis))
        candidates.sort(
            key=lambda pair: (pair[0].stage, pair[0].cost > 0, -pair[1].strength, pair[0].cost)
        )
        yield from candidates

    def _try(self, cause: Cause, variant: Variant, hypothesis: Hypothesis) -> TriedCause | None:
        try:
            outcome = cause.experiment(self.experiments, variant, hypothesis)
        except EngineError as error:
            self.notes.append(f"experiment for {cause.id} failed: {error.what}")
            return None
        if outcome is None:
            return None
        if outcome.after is None:  # detected with certainty, but not part of the gap
            self._name(cause, outcome, outcome.explained, {}, proven=True)
            return None
        before, after = outcome.before or variant, outcome.after
        share = self._removed_share(cause, outcome, before, after)
        if not (share >= cause.least or (cause.subtle and self._reaches(cause, before, after))):
            return None
        if not keeps_tokens(before, after):
            return None
        # A gap that disappears is not chance, however few responses had it.
        by_chance = share < WHOLE and not significant(before.tokens, after.tokens)
        part = min(1.0, before.gap / variant.gap) if variant.gap > 0 else 1.0
        return None if by_chance else TriedCause(cause, outcome, share, part)

    def _removed_share(
        self, cause: Cause, outcome: ExperimentResult, before: Variant, after: Variant
    ) -> float:
        """Share of the gap that an experiment removed.

        A precision flips experts at random in a mixture of experts, so it is judged by the tokens
        that it routes to the same experts.
        """
        share = 1 - after.gap / before.gap if before.gap > 0 else 0.0
        if (outcome.identity.id if outcome.identity else cause.id) != "precision":
            return share
        routed = (self.experiments.with_routes(each).tokens for each in (before, after))
        return max(share, removed_at_agreeing(*routed))

    def _reaches(self, cause: Cause, before: Variant, after: Variant) -> bool:
        """Whether removing the cause removes enough of the gap in excess of rounding."""
        beyond = max(before.gap - (self.noise or 0.0), 0.0)
        return before.gap - after.gap > cause.least * beyond

    def _fitted_again(self, tried: TriedCause) -> TriedCause:
        """The cause after the numbers of all causes so far were fitted again.

        What remains of an inexact number must not look like a further cause.
        """
        before, after = tried.outcome.before or self.variant, tried.outcome.after
        if self.first is None or before is None or after is None or self._settled(tried):
            return tried
        try:
            fitted = refitted(self.experiments, after, self.first.setup)
        except EngineError as error:
            self.notes.append(f"the numbers of {tried.cause.id} were not refined: {error.what}")
            return tried
        numbers = fitted_numbers(fitted.setup, after.setup)
        outcome = replace(tried.outcome, after=fitted, details=(*tried.outcome.details, *numbers))
        return replace(tried, outcome=outcome, share=1 - fitted.gap / before.gap)

    def _accept(self, tried: TriedCause) -> None:
        before, after = tried.outcome.before or self.variant, tried.outcome.after
        if before is None or after is None:
            return
        shown = self._shown_rounding(tried, before, after)
        if shown is not None and shown.noise > (self.noise or 0.0):
            self.noise, self.rounding = shown.noise, shown
        if tried.cause.repeats and self.before_edits is None and self.variant is not None:
            self._save(self.variant)
        figures = {"gap_before": before.gap, "gap_after": after.gap}
        sure = is_sure(tried.explained, left=self.left, is_settled=self._settled(tried))
        self._name(tried.cause, tried.outcome, tried.explained, figures, proven=sure)
        if self.variant is not None:
            step = Step(self.named[-1].cause, self.variant.setup, after.setup)
            self.steps.append(step)
        self.left *= 1 - tried.explained
        self.variant = after if self._is_quiet(after) else self._refreshed(after)

    def _refreshed(self, variant: Variant) -> Variant:
        """The variant with the columns that the next signatures need."""
        if variant.setup.replay:  # the columns would be those of the learner's own experts
            return Variant(variant.setup, variant.tokens.without_columns())
        try:
            return self.experiments.with_columns(variant)
        except EngineError as error:
            self.notes.append(f"the learner returned no further columns: {error.what}")
            return Variant(variant.setup, variant.tokens.without_columns())

    def _name(
        self,
        cause: Cause,
        outcome: ExperimentResult,
        share: float | None,
        figures: dict[str, float],
        *,
        proven: bool,
    ) -> None:
        explained = None if share is None else share * self.left
        confidence: Confidence = outcome.confidence
        if confidence == "proven" and not proven:
            confidence = "likely"
        name = outcome.identity or Identity(cause.id, cause.title, cause.remedies)
        details = outcome.details
        if self.subset is not None:
            details = (*details, f"only in {self.subset.words}")
        self.experiments.named.add(name.id)
        if cause.is_surrogate:
            self.imitated.add(name.id)
        self.named.append(
            NamedCause(
                cause=name.id,
                title=name.title,
                confidence=confidence,
                explained=explained,
                summary=outcome.summary,
                details=details,
                figures={**figures, **outcome.figures},
                remedies=name.remedies,
            )
        )

    def _examine_remainder(self) -> None:
        """Examine the causes that can be detected but not removed on the remaining gap."""
        if self.variant is None:
            return
        self._confirm(self.variant)
        for cause, hypothesis in self._hypotheses(self.variant, peels=False):
            if cause.id == "batch-variance" and "nondeterminism" in self.experiments.named:
                continue
            if self.left < WORTH_NAMING and cause.when != "always":
                continue
            try:
                outcome = cause.experiment(self.experiments, self.variant, hypothesis)
            except EngineError as error:
                self.notes.append(f"experiment for {cause.id} failed: {error.what}")
                continue
            if outcome is not None:
                self._name(cause, outcome, outcome.explained, {}, proven=True)
                self.left *= 1 - (outcome.explained or 0.0)
        named = any((cause.explained or 0.0) >= PROVEN for cause in self.named)
        if not named and not self._is_quiet(self.variant):
            self._guess(self.variant)

    def _confirm(self, variant: Variant) -> None:
        """Keep imitated causes proven only if nothing but rounding remains of their gap."""
        if self._is_quiet(variant):
            return
        self.named = [
            replace(each, confidence="likely")
            if each.confidence == "proven"
            and each.cause in self.imitated
            and variant.gap >= CLOSED * each.figures.get("gap_before", 0.0)
            else each
            for each in self.named
        ]

    def _guess_from_checksums(self) -> None:
        """Name different weights that checksums show, if no time is left to test them."""
        if self.variant is None or self.named or not self.experiments.case.differing:
            return
        with suppress(BudgetSpentError):  # the noise may not be known either
            self._guess(self.variant)

    def _guess(self, variant: Variant) -> None:
        """Name possible causes of a mostly unexplained gap that no experiment could test."""
        for cause in all_causes():
            outcome = (
                None
                if cause.id in self.experiments.named
                else cause.remainder(self.experiments, variant)
            )
            if outcome is not None:
                self._name(cause, outcome, None, {}, proven=False)


def _is_relevant(cause: Cause, variant: Variant, *, quiet: bool) -> bool:
    if cause.when == "always":
        return True
    return variant.gap > EXACT and (cause.when == "gap" or not quiet)


def _rank(named: NamedCause) -> tuple[float, int]:
    certainty = {"proven": 0, "likely": 1, "possible": 2}[named.confidence]
    return -(named.explained if named.explained is not None else -1.0), certainty
