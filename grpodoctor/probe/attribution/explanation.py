"""The causes that a search has accepted: their names, their order, and how they are judged."""

from __future__ import annotations

import traceback
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from grpodoctor.errors import EngineError, GrpodoctorError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.hypotheses import guesses
from grpodoctor.probe.attribution.search.gap_tests import GapTests
from grpodoctor.probe.attribution.search.saved_state import SavedState
from grpodoctor.probe.attribution.search.selection import (
    CLOSED,
    WHOLE,
    Step,
    TriedCause,
    gaps_in_order,
    is_sure,
    removed_shares,
    unneeded,
    with_exact,
)
from grpodoctor.probe.attribution.search.subsets import Subset
from grpodoctor.probe.attribution.search.together import (
    Simpler,
    closing_rival,
    judged_together,
    simpler,
)
from grpodoctor.probe.attribution.split_steps import in_steps
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described
from grpodoctor.probe.attribution.wording.naming import (
    as_judged,
    as_likely,
    leaves_much,
    named_cause,
    replaced_by,
    with_share,
)
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.results.results import NamedCause
from grpodoctor.support.safe_text import clean_text

DEFECT = "defect"
"""The first word of a note on an experiment that raised an unexpected error."""


class Explanation:
    """The explanation of a gap, as far as it is known.

    Args:
        experiments: of the case.
    """

    def __init__(self, experiments: Experiments) -> None:
        self.experiments = experiments
        self.tests = GapTests(experiments)
        self.notes: list[str] = []
        self.named: list[NamedCause] = []
        self.imitated: set[str] = set()
        """Ids of named causes whose experiment imitates the cause."""
        self.steps: list[Step] = []
        """The accepted causes, in the order of their removal."""
        self.left = 1.0
        """Share of the gap that is not yet explained."""
        self.variant: Variant | None = None
        self.limit: Subset | None = None
        """The responses or tokens to which the search is limited at present."""
        self.checked = 0
        """The first accepted causes, which were judged before the search was limited."""
        self.before_edits: SavedState | None = None
        """The state to return to if the edits are withdrawn."""

    def _state(self, variant: Variant) -> SavedState:
        return SavedState(
            named=tuple(self.named),
            taken=frozenset(self.experiments.named),
            imitated=frozenset(self.imitated),
            steps=tuple(self.steps),
            left=self.left,
            variant=variant,
            limit=self.limit,
            checked=self.checked,
            noise=self.tests.noise,
            rounding=self.tests.rounding,
        )

    def _outcome(
        self, cause: Cause, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """What a cause's experiment finds; None if it finds nothing or fails."""
        try:
            return cause.experiment(self.experiments, variant, hypothesis)
        except EngineError as error:
            self.notes.append(f"experiment for {cause.id} failed: {error.what}")
        except (GrpodoctorError, MemoryError):  # the budget is spent, or all would fail
            raise
        except Exception as error:  # noqa: BLE001 - a fault in one must not end the others
            self.notes.append(
                f"{DEFECT} in the experiment for {cause.id}, please report it: {_place_of(error)}"
            )
        return None

    def _restore(self, saved: SavedState) -> None:
        self.named, self.steps = list(saved.named), list(saved.steps)
        self.left, self.variant, self.limit = saved.left, saved.variant, saved.limit
        self.imitated, self.experiments.named = set(saved.imitated), set(saved.taken)
        self.tests.noise, self.tests.rounding = saved.noise, saved.rounding
        self.checked = saved.checked

    def _withdraw_edits(self) -> bool:
        """Withdraw edits that together with all later causes leave much of the gap.

        The best of a hundred edits imitates a part of any gap, such as that of other weights. Two
        faults can each leave a part; together they leave next to nothing.
        """
        saved = self.before_edits
        if saved is None or not self._leave_much(saved):
            return False
        self._restore(saved)
        return True

    def _leave_much(self, saved: SavedState) -> bool:
        """Whether the edits since a state, and all later causes, leave much of its gap."""
        if self.variant is None or self.tests.is_quiet(self.variant):
            return False
        return self.left > (1 - WHOLE) * saved.left and self.checked <= len(saved.steps)

    def _would_only_withdraw(
        self, steps: Sequence[Step], start: SavedState, edits: SavedState | None
    ) -> bool:
        """Whether the present edits would be withdrawn, and other causes would not be.

        Causes that explain the sampler's own scores leave the gap of another fault, however large.
        An edit that imitates a larger part of both is no reason to give them up.
        """
        is_kept = edits is None and len(steps) > len(start.steps)
        return is_kept and self.before_edits is not None and self._leave_much(self.before_edits)

    def _drop_unneeded(self, variant: Variant) -> Variant:
        """Drop causes that the later ones make superfluous; returns the variant without them."""
        steps = self.steps[self.checked :]
        try:
            dropped, variant = unneeded(self.experiments, variant, steps)
        except EngineError as error:
            self.notes.append(f"the causes were not tested against each other: {error.what}")
            return variant
        ids = {step.cause for step in steps}
        whole = sum(each.explained or 0.0 for each in self.named if each.cause in ids)
        self.named = [each for each in self.named if each.cause not in dropped]
        self.steps = [each for each in self.steps if each.cause not in dropped]
        self.experiments.named.difference_update(dropped)
        if dropped:
            self._share_again(variant, whole)
        return variant

    def _share_again(self, final: Variant, whole: float) -> None:
        """Divide a share of the gap among the causes that are left after others were dropped.

        Each was measured after the dropped ones, which took a part of its share.
        """
        steps = self.steps[self.checked :]
        ids = {step.cause for step in steps}
        # Also if the budget ends now: the former shares do not add up.
        alone = whole if len(steps) == 1 else None
        self.named = [
            replace(each, explained=alone) if each.cause in ids else each for each in self.named
        ]
        try:
            gaps = gaps_in_order(self.experiments, final, steps)
        except EngineError as error:
            self.notes.append(f"the shares of the causes were not measured again: {error.what}")
            return
        shares = removed_shares(steps, gaps, whole) if gaps else {}
        self.named = [
            with_share(each, shares[each.cause]) if each.cause in shares else each
            for each in self.named
        ]

    def _prove_together(self, final: Variant) -> None:
        """Judge the causes of a closed gap by what happens without any one of them."""
        if not self.tests.is_quiet(final):
            return
        steps = self.steps[self.checked :]
        judged = judged_together(self.experiments, final, steps, self.tests.is_quiet)
        fewer = simpler(self.experiments, steps, judged.replaceable, self.tests.is_quiet)
        if fewer is not None and final is self.variant and not self.checked:
            self._replace(fewer)
            return
        fitting = {cause: described(rival.edit) for cause, rival in judged.replaceable.items()}
        self.named = [as_judged(each, judged.proven, fitting) for each in self.named]

    def _call_likely(self, causes: Set[str]) -> None:
        self.named = [as_likely(each) if each.cause in causes else each for each in self.named]

    def _replace_imitation(self, variant: Variant) -> bool:
        """Replace a cause that leaves an error by a rival that closes the gap, if there is one."""
        if self.left >= CLOSED or self.tests.is_quiet(variant):
            return False
        steps = self.steps[self.checked :]
        found = closing_rival(self.experiments, variant, steps, self.tests.is_quiet)
        if found is not None:
            self.left *= found.final.gap / variant.gap
            self._replace(found)
        return found is not None

    def _replace(self, fewer: Simpler) -> None:
        """Continue with a rival in place of a cause, without the causes that it makes spare."""
        old, rival, self.variant = fewer.replaced, fewer.rival, fewer.final
        self.imitated.add(rival.step.cause)
        self.named = [
            replaced_by(each, rival.edit, self.variant) if each.cause == old else each
            for each in self.named
            if each.cause not in fewer.dropped
        ]
        self.steps = fewer.steps(self.steps)
        self._prove_together(self.variant)

    def _is_moved(self, most: float = 1.0) -> bool:
        """Whether earlier weights are named that leave at most a share of the gap.

        The weights of several updates ago are not quite on a line, so an error remains, which
        generic edits would imitate.
        """
        return "earlier-weights" in self.experiments.named and self.left <= most

    def _settles(self, tried: TriedCause) -> bool:
        return self.tests.is_settled(tried, self.variant)

    def _accept(self, tried: TriedCause) -> None:
        before, after = tried.outcome.before or self.variant, tried.outcome.after
        if before is None or after is None:
            return
        for step in in_steps(self.experiments, tried, before, after):
            self._accept_step(step)
        # Of two causes that were found together, either step alone removes too little to show it.
        self.tests.learn_rounding(tried, before, after)
        self.variant = after if self.tests.is_quiet(after) else self._refreshed(after)

    def _accept_step(self, tried: TriedCause) -> None:
        before, after = tried.outcome.before or self.variant, tried.outcome.after
        if before is None or after is None:
            return
        sure = is_sure(tried.explained, left=self.left, is_settled=self._settles(tried))
        self.tests.learn_rounding(tried, before, after)
        if tried.cause.repeats and self.before_edits is None and self.variant is not None:
            self.before_edits = self._state(self.variant)
        figures = {"gap_before": before.gap, "gap_after": after.gap}
        self._name(tried.cause, with_exact(tried), max(tried.explained, 0.0), figures, proven=sure)
        if self.variant is not None:
            self.steps.append(tried.step(self.variant.setup, after.setup))
        self.left *= 1 - tried.explained
        self.variant = after

    def _refreshed(self, variant: Variant) -> Variant:
        """The variant with the columns that the next signatures need."""
        if not variant.setup.replay:  # the columns would be those of the learner's own experts
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
        where = self.limit.words if self.limit else ""
        part = None if share is None else share * self.left
        named = named_cause(cause, outcome, part, figures, is_sure=proven, where=where)
        self.experiments.named.add(named.cause)
        if cause.is_surrogate:
            self.imitated.add(named.cause)
        self.named.append(named)

    def _confirm(self, variant: Variant) -> None:
        """Keep imitated causes proven only if next to nothing remains and no other edit is near."""
        if self.tests.is_quiet(variant):
            return
        imitated = self.imitated - {step.cause for step in self.steps[: self.checked]}
        doubtful = {each.cause for each in self.named if leaves_much(each, variant.gap)}
        doubtful |= {step.cause for step in self.steps if step.rivals}
        self._call_likely(imitated & doubtful)

    def _guess_from_checksums(self) -> None:
        """Name different weights that checksums show, if no time is left to test them."""
        if self.variant is None or self.named or not self.experiments.case.differing:
            return
        with suppress(BudgetSpentError):  # the noise may not be known either
            self._guess(self.variant)

    def _guess(self, variant: Variant) -> None:
        """Name possible causes of a mostly unexplained gap that no experiment could test."""
        for cause, outcome in guesses(self.experiments, variant):
            self._name(cause, outcome, None, {}, proven=False)


def _place_of(error: Exception) -> str:
    """An error in one line, with the file and line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    return " ".join(clean_text(f"{type(error).__name__}: {error} ({where})").split())
