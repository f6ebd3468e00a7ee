"""Searching accepted tensors again, next to the causes that were found after them.

Next to a second fault, tensors that move log-probabilities less than the fault does are left out.
What they leave then looks like a further cause, or keeps the second fault from being accepted.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from grpodoctor.probe.attribution.edits import OTHER_WEIGHTS, Edit, Edits
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.refit import BETTER, fitted_numbers, refitted
from grpodoctor.probe.attribution.search.selection import TriedCause
from grpodoctor.probe.attribution.search.tensor_search import TensorSearch
from grpodoctor.probe.attribution.tensors import unequal_tensors
from grpodoctor.probe.attribution.tokens import falls
from grpodoctor.probe.attribution.variant import Setup, Variant


def fitted_cause(
    experiments: Experiments, tried: TriedCause, before: Variant, after: Variant, original: Setup
) -> TriedCause:
    """A cause after the numbers and the tensors of all causes so far were fitted again.

    Args:
        experiments: of the case.
        tried: the cause.
        before: the variant before its removal.
        after: the variant after it.
        original: the setup before all causes.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    fitted = refitted(experiments, after, original)
    again = with_tensors_again(experiments, fitted, before)
    if again is not None:
        fitted = refitted(experiments, again, original)
    numbers = fitted_numbers(fitted.setup, after.setup)
    summary = tried.outcome.summary
    if numbers and fitted.gap < after.gap:  # the sentence has the first numbers and what they left
        summary += f", and to {fitted.gap:.2g} after its numbers were fitted again"
    details = (*tried.outcome.details, *numbers)
    outcome = replace(tried.outcome, after=fitted, summary=summary, details=details)
    return replace(tried, outcome=outcome, share=1 - fitted.gap / before.gap)


def with_tensors_again(
    experiments: Experiments, variant: Variant, before: Variant
) -> Variant | None:
    """The variant with other tensors of the same checkpoint; None if none are better.

    Args:
        experiments: of the case.
        variant: the variant whose tensors are searched.
        before: the variant before its last cause; its tensors were searched in another setup.
    """
    edit = tensor_edit(variant.setup.edits)
    others = tuple(each for each in variant.setup.edits if each != edit)
    if edit is None or not experiments.is_loud(variant.gap) or variant.setup.replay:
        return None
    if replace(variant.setup, edits=others) == before.setup:
        return None  # they were just searched in this setup
    folder, taken, every = tensors_of(experiments, variant.setup, edit)
    names = unequal_tensors(experiments, folder, every)
    bare = experiments.vary(variant, edits=others)
    search = TensorSearch(experiments, bare, folder, sorted(names))
    found = search.run_from(taken)
    if found == taken:
        return None
    after = experiments.vary(variant, edits=(*others, search.edit(found)))
    is_better = after.gap < BETTER * variant.gap and falls(variant.tokens, after.tokens)
    return after if is_better else None


def tensor_edit(edits: Edits) -> Edit | None:
    """The edit that takes tensors of another checkpoint, if there is one."""
    return next((edit for edit in edits if edit[0] == OTHER_WEIGHTS), None)


def tensors_of(
    experiments: Experiments, setup: Setup, edit: Edit
) -> tuple[Path, frozenset[str], frozenset[str]]:
    """The other checkpoint, the tensors that an edit takes of it, and all tensors."""
    value = json.loads(edit[1])
    every = frozenset(experiments.tensor_names(setup.learner))
    taken = frozenset(name for name in every if re.search(value["only"], name))
    return Path(value["from"]), taken.union(value.get("parts", ())), every
