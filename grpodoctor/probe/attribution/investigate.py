"""Attribution: find the largest cause of a gap, remove it, and continue with the remaining gap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, Hypothesis
from grpodoctor.probe.attribution.case import Attribution, Case
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.explanation import Explanation
from grpodoctor.probe.attribution.final_side import (
    notes_on_side,
    with_final_place,
    with_final_side,
)
from grpodoctor.probe.attribution.hypotheses import hypotheses
from grpodoctor.probe.attribution.reference import with_reference
from grpodoctor.probe.attribution.search.own_scores import (
    as_reported,
    in_one_pass,
    step_as_reported,
)
from grpodoctor.probe.attribution.search.own_variation import is_own
from grpodoctor.probe.attribution.search.refit_tensors import fitted_cause
from grpodoctor.probe.attribution.search.saved_state import SavedState
from grpodoctor.probe.attribution.search.selection import (
    CLOSED,
    NEARLY_WHOLE,
    PROVEN,
    WHOLE,
    WORTH_NAMING,
    Step,
    TriedCause,
    first_causes,
    is_better_explanation,
    is_worth_accepting,
)
from grpodoctor.probe.attribution.search.subsets import Subset, differing_part, rest_of
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.naming import (
    doubtful_errors,
    rank,
    with_final_tensors,
)
from grpodoctor.probe.attribution.wording.verdict import verdict_of
from grpodoctor.probe.engines.jobs import BudgetSpentError, JobRunner
from grpodoctor.probe.results.results import NamedCause
from grpodoctor.probe.severity import EXACT, QUIET

_MOST_CAUSES = 6
_MOST_STARTS = 4
"""Other first causes from which the search starts again if much of the gap remains."""
_BASIS, _MOST_BASES = 0.3, 2
"""Share of the gap of other first causes on top of which known kinds are tried, and their number,
before generic edits are."""
_FAULTS = 2
"""Causes that are accepted before generic edits are tried, unless hardly anything remains."""
_ENDED = "the search from other causes ended at its limit of passes"
_MOVED = 0.2
"""Share of the gap that earlier weights may leave so that no other first cause is tried."""
_WEAK = 0.05
"""Share of the gap that such a first cause must remove. Next to a second fault that saturates the
difference, the removal of the first one changes little."""


def attribute(runner: JobRunner, case: Case) -> tuple[NamedCause, ...]:
    """The causes of a case's gap, the largest share first.

    Empty if there is nothing to explain. If the budget runs out, the causes found so far.

    Raises:
        EngineError: if the shards of the measurement cannot be read.
    """
    return investigate(runner, case).causes


@np.errstate(invalid="ignore")  # forbidden tokens: -inf minus -inf
def investigate(runner: JobRunner, case: Case) -> Attribution:
    """The causes of a case's gap, with the verdict, the noise and the experiments not run.

    Raises:
        EngineError: if the shards of the measurement cannot be read.
    """
    return _Investigation(runner, case).result()


@np.errstate(invalid="ignore")  # forbidden tokens: -inf minus -inf
def measured_rounding(runner: JobRunner, case: Case) -> Attribution:
    """The gap of a case and the noise of its learner, without a search for causes.

    Raises:
        EngineError: if the shards of the measurement cannot be read.
        BudgetSpentError: if the time budget is used up.
    """
    return _Investigation(runner, case).rounding_alone()


class _Investigation(Explanation):
    """The state of one investigation."""

    def __init__(self, runner: JobRunner, case: Case) -> None:
        super().__init__(Experiments(runner, case))
        self.first: Variant | None = None
        self.tries_edits = True
        self.is_judged = False
        """Whether the causes were judged next to each other."""
        self.subset: Subset | None = None
        """The responses that differ, if the others agree from the start."""

    def result(self) -> Attribution:
        is_cut_short = False
        try:
            self._investigate()
        except BudgetSpentError:
            is_cut_short = True
            self.notes.append("the time budget ended before all experiments were run")
            self._judge_what_was_found()
            self._guess_from_checksums()
        final = (with_final_tensors(self.experiments, each, self.variant) for each in self.named)
        final = (with_final_side(self.experiments, each, self.variant) for each in final)
        final = (with_final_place(each, self.variant) for each in final)
        causes = tuple(sorted(final, key=rank))
        self.notes += notes_on_side(self.experiments.case, causes, self.variant)
        self.notes += self.experiments.found.notes
        gap = self.first.gap if self.first else math.nan
        attribution = Attribution(
            causes=causes,
            verdict="",
            gap=gap,
            noise=self.tests.noise,
            noise_is_usual=self.tests.noise_is_usual,
            left=None if self.tests.is_quiet(self.first) and not causes else max(0.0, self.left),
            notes=tuple(dict.fromkeys(self.notes)),
            subset=self.subset.words if self.subset else "",
            flips=self.experiments.left_out,
        )
        quiet = self.tests.is_quiet(self.variant)
        return verdict_of(
            self.experiments.case, attribution, quiet=quiet, is_cut_short=is_cut_short
        )

    def rounding_alone(self) -> Attribution:
        self._measure_rounding()
        return Attribution(
            causes=(),
            verdict="",
            gap=self.first.gap if self.first else math.nan,
            noise=self.tests.noise,
            noise_is_usual=self.tests.noise_is_usual,
            left=None,
            flips=self.experiments.left_out,
        )

    def _measure_rounding(self) -> Variant:
        """Compare the gap with rounding; returns the tokens that the search uses."""
        self.first = self.variant = self.experiments.first()
        if self.first.gap > EXACT:
            self.tests.noise = self.experiments.noise
            excess = self.experiments.rounding.excess_flips(self.first.tokens)
            self.notes += [excess] if excess else []
        if self.first.gap > max(EXACT, QUIET * (self.tests.noise or 0.0)):
            self.first = self.variant = self._without_rounding_flips(self.first)
        return self.first

    def _investigate(self) -> None:
        first = self._measure_rounding()
        self.variant = first
        if not self.tests.is_quiet(first):
            self.variant = self._with_reference(first)
            self._search_subset(self.variant)
        if not self.steps:
            self._search()
        self.variant = self._drop_unneeded(self.variant)
        if len(self.steps) > 1:
            self._prove_together(self.variant)
        self.is_judged = True
        self._examine_remainder()
        self._call_likely(doubtful_errors(self.named, self.imitated))

    def _without_rounding_flips(self, variant: Variant) -> Variant:
        """The tokens before the first flip of a response, if rounding explains the flips."""
        variant = self.experiments.with_routes(variant)
        flips = self.experiments.rounding.flips_in(variant.tokens)
        if flips is None:
            return variant
        self.experiments.left_out, self.tests.noise = flips, flips.noise
        return Variant(variant.setup, variant.tokens.where(flips.steady_N))

    def _search(self) -> None:
        """Accept causes until none explains the rest."""
        if self.variant is None:
            return
        start = self._state(self.variant)
        self.tries_edits, self.before_edits = True, None
        if not self._search_known(start):
            self._search_further(start)
        if self._withdraw_edits():
            self.tries_edits = False
            self._accept_causes()

    def _search_known(self, start: SavedState) -> bool:
        """Accept causes without generic edits; whether they close the gap.

        Generic edits cost most, and the best of a thousand imitates a part of two faults. So after
        a first cause that explains much, and after up to two others in its place, every known kind
        is tried on what remains before any generic edit is.
        """
        self.experiments.tries_generic = False
        try:
            self._accept_causes()
            self._start_from_own_scores(start)
            self._start_from_others(start, least=_BASIS, most=_MOST_BASES)
        finally:
            self.experiments.tries_generic = True
        if self.variant is None:
            return True
        is_single = len(self.steps) - len(start.steps) < 2
        is_small = is_single or self.left <= (1 - NEARLY_WHOLE) * start.left
        return self._is_moved() or (self.tests.is_quiet(self.variant) and is_small)

    def _search_further(self, start: SavedState) -> None:
        """Search with generic edits, too; keep the known causes if these explain as much."""
        if self.variant is None:
            return
        known, edits, is_ended = self._state(self.variant), self.before_edits, False
        is_quiet = self.tests.is_quiet(self.variant)
        self._restore(start)
        self.before_edits = None
        try:
            self._accept_causes()
            self._start_from_own_scores(start)
            self._start_from_others(start)
            is_ended = True
        finally:  # also if the budget ends
            is_better = known.left < self.left
            if is_ended:
                is_better = is_better_explanation(known.left, than=self.left, is_quiet=is_quiet)
                is_better &= self.variant is None or not self._is_explained(self.variant)
                is_better |= self._would_only_withdraw(known.steps, start, edits)
                is_better |= len(self.steps) == len(start.steps)  # it found nothing
            if is_better:
                self._restore(known)
                self.before_edits = edits

    def _accept_causes(self) -> None:
        while self.variant is not None and len(self.named) < _MOST_CAUSES:
            is_shallow = not self.experiments.tries_generic and self.left > 1 - WHOLE
            if is_shallow and len(self.steps) >= _FAULTS:
                return
            if self._replace_imitation(self.variant):
                return
            # Another cause of all responses would part those again that are equal now.
            if self.steps and self.steps[-1].equals_some and self._limit_further(self.variant):
                continue
            if not self._round(self.variant) and not self._limit_further(self.variant):
                return

    def _limit_further(self, variant: Variant) -> bool:
        """Continue with the responses that still differ; False if no cause is found for them."""
        if self.limit is not None or not self.steps or self.tests.is_quiet(variant):
            return False
        limit = differing_part(self.experiments, variant)
        if limit is None and self.first is not None and not variant.setup.rescored:
            limit = rest_of(variant.tokens, self.tests.exact(self.first, variant))
        if limit is None:
            return False
        whole = self._checked_outside(variant, limit)
        self.limit = limit
        self.variant = Variant(whole.setup, whole.tokens.where(limit.tokens_N))
        if self._round(self.variant):
            return True
        self.limit, self.variant = None, whole
        return False

    def _checked_outside(self, variant: Variant, limit: Subset) -> Variant:
        """All responses, after the causes so far were judged by those outside a limit."""
        outside = Variant(variant.setup, variant.tokens.where(~limit.tokens_N))
        judged = self._drop_unneeded(outside)
        self._prove_together(judged)
        self.checked = len(self.steps)
        return Variant(judged.setup, replace(judged.tokens, counted_N=variant.tokens.counted_N))

    def _start_from_others(
        self, start: SavedState, *, least: float = _WEAK, most: int = _MOST_STARTS
    ) -> None:
        """Search again from other first causes: the best one may imitate a part of two faults.

        Args:
            start: the state before the first cause.
            least: share of the gap that another first cause must remove.
            most: other first causes that are tried, strongest first.
        """
        if self.variant is None or self._is_explained(self.variant):
            return
        if self.checked > len(start.steps):  # they explain the responses that agree now
            return
        best, edits = self._state(self.variant), self.before_edits
        try:
            for tried in self._other_starts(start, best.steps, least)[:most]:
                if not self.experiments.has_passes:
                    if self.experiments.tries_generic:
                        self.notes.append(_ENDED)
                    break
                self._restore(start)
                self.before_edits = None
                self._accept(self._fitted_again(tried))
                self._accept_causes()
                is_quiet = self.tests.is_quiet(self.variant)
                if self._would_only_withdraw(best.steps, start, edits):
                    continue
                if self.variant is not None and is_better_explanation(
                    self.left, than=best.left, is_quiet=is_quiet
                ):
                    best, edits = self._state(self.variant), self.before_edits
                    if is_quiet:
                        break
        finally:  # also if the budget ends
            self._restore(best)
            self.before_edits = edits

    def _is_explained(self, variant: Variant) -> bool:
        """Whether the causes so far leave nothing that is worth a further search."""
        return self.left <= CLOSED or self.tests.is_quiet(variant) or self._is_moved(_MOVED)

    def _start_from_own_scores(self, start: SavedState) -> None:
        """Search again: first explain the sampler's own scores, if they differ from both columns.

        They contain the faults of its forward pass, but not those of what only generation uses,
        such as the prompt that it reads.
        """
        if self.variant is None or self._is_explained(self.variant):
            return
        between = in_one_pass(self.experiments, start.variant)
        if between is None or self.limit is not None or self.checked > len(start.steps):
            return
        best, edits, first = self._state(self.variant), self.before_edits, self.first
        self._restore(start)
        self.first, self.variant, self.before_edits = between, between, None
        try:
            self._accept_causes()
            if self._continue_as_reported(start):
                self.first = first
                self._accept_causes()
                best, edits = self._state(self.variant), None
        finally:  # also if the budget ends
            self._restore(best)
            self.before_edits, self.first = edits, first

    def _continue_as_reported(self, start: SavedState) -> bool:
        """Return to the reported values; False unless the sampler's own scores are explained."""
        if self.variant is None or self.limit is not None or len(self.steps) == len(start.steps):
            return False
        if not self._is_explained(self.variant):
            return False
        reported = as_reported(self.experiments, start.variant, self.variant)
        if reported is None:
            return False
        own = len(start.steps)
        steps = [step_as_reported(step, start.variant.setup) for step in self.steps[own:]]
        self.steps = [*start.steps, *steps]
        self.left = start.left * min(reported.gap / start.variant.gap, 1.0)
        part, taken = start.left - self.left, {step.cause for step in steps}
        self.named = [
            replace(each, explained=(each.explained or 0.0) * part) if each.cause in taken else each
            for each in self.named
        ]
        self.variant = self._refreshed(reported)
        return True

    def _other_starts(
        self, start: SavedState, steps: Sequence[Step], least: float
    ) -> list[TriedCause]:
        """The causes that alone remove some of the gap, strongest first, but the accepted one."""
        self._restore(start)
        tried: list[TriedCause] = []
        for cause, hypothesis in self._hypotheses(start.variant, peels=True):
            tried += self._results(cause, start.variant, hypothesis, least=least)
        return first_causes(tried, besides=steps[0].cause if steps else "")

    def _search_subset(self, variant: Variant) -> None:
        """Continue with the responses or tokens that differ, if a cause is found for them."""
        self.subset = differing_part(self.experiments, variant)
        if self.subset is None:
            return
        self.limit = self.subset
        self.variant = Variant(variant.setup, variant.tokens.where(self.subset.tokens_N))
        self._search()
        if not self.steps:  # the responses themselves are reported
            self.subset, self.limit, self.variant = None, None, variant

    def _with_reference(self, variant: Variant) -> Variant:
        """The variant with an engine that can compute differently, if the learner cannot."""
        try:
            return with_reference(self.experiments, variant)
        except EngineError as error:
            self.notes.append(f"a reference engine could not score: {error.what}")
            return variant

    def _round(self, variant: Variant) -> bool:
        """Remove the cause that explains most; False if no experiment explains the gap."""
        best: TriedCause | None = None
        for cause, hypothesis in self._hypotheses(variant, peels=True):
            if cause.repeats and best and best.cause.uses_other_files:
                continue
            for tried in self._results(cause, variant, hypothesis):
                if best is None or tried.evidence > best.evidence:
                    best = tried
            if best and (best.is_enough or self._settles(best)):
                break
        if best is None:
            return False
        best = self._fitted_again(best)
        is_worth = is_worth_accepting(
            best.evidence,
            left=self.left,
            is_settled=self._settles(best),
            has_imitated=any(step.leaves_error for step in self.steps),
            is_first=not self.steps,
        )
        if is_worth:
            self._accept(best)
        return is_worth

    def _hypotheses(self, variant: Variant, *, peels: bool) -> Iterator[tuple[Cause, Hypothesis]]:
        quiet, edits = self.tests.is_quiet(variant), self.tries_edits
        found = hypotheses(self.experiments, variant, peels=peels, quiet=quiet, with_edits=edits)
        # After the cheap causes, and before hundreds of edits or prompts are tried.
        sides = self.experiments, variant
        return (pair for pair in found if not (pair[0].needs_steady and is_own(*sides)))

    def _results(
        self, cause: Cause, variant: Variant, hypothesis: Hypothesis, least: float | None = None
    ) -> list[TriedCause]:
        """What a cause's experiment removes; empty if that is too little.

        Args:
            cause: to examine.
            variant: the gap.
            hypothesis: of the cause.
            least: share of the gap from which results count, further ones of the experiment
                included, and nothing is named yet; None for the cause's own and its best result.
        """
        outcome = self._outcome(cause, variant, hypothesis)
        if outcome is None:
            return []
        if outcome.after is None:  # detected with certainty, but not part of the gap
            if least is None:
                self._name(cause, outcome, outcome.explained, {}, proven=True)
            return []
        outcomes = (outcome, *outcome.alternatives) if least is not None else (outcome,)
        tried = (self.tests.judged(cause, variant, each, least) for each in outcomes)
        return [each for each in tried if each is not None]

    def _fitted_again(self, tried: TriedCause) -> TriedCause:
        """The cause after the numbers and tensors of all causes so far were fitted again."""
        before, after = tried.outcome.before or self.variant, tried.outcome.after
        if self.first is None or before is None or after is None or self._settles(tried):
            return tried
        if tried.typical or tried.exact:  # nothing must be fitted to the further cause of the rest
            return tried
        try:
            return fitted_cause(self.experiments, tried, before, after, self.first.setup)
        except EngineError as error:
            self.notes.append(f"the numbers of {tried.cause.id} were not refined: {error.what}")
            return tried

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
            outcome = self._outcome(cause, self.variant, hypothesis)
            if outcome is not None:
                self._name(cause, outcome, outcome.explained, {}, proven=True)
                self.left *= 1 - (outcome.explained or 0.0)
        named = any((cause.explained or 0.0) >= PROVEN for cause in self.named)
        if not named and not self.tests.is_quiet(self.variant):
            self._guess(self.variant)

    def _judge_what_was_found(self) -> None:
        """Judge the causes by what remains if the budget ends before they are tested together."""
        with suppress(BudgetSpentError):  # the noise may not be known either
            if self.variant is not None:
                self._confirm(self.variant)
        if len(self.steps) > 1 and not self.is_judged:
            # The last cause was measured next to all others; it may make any of them superfluous.
            earlier = {step.cause for step in self.steps[:-1]}
            self._call_likely(self.imitated | earlier)
        self._call_likely(doubtful_errors(self.named, self.imitated))
