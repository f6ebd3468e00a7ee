"""Proof of several causes that close a gap together.

Next to a second fault, a cause may remove little of the gap, or others may fit as well. Once the
gap is closed, each cause can be judged alone: with it restored, or with another edit in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.refit import refitted
from grpodoctor.probe.attribution.search.selection import Step, edit_key, without_step
from grpodoctor.probe.attribution.tokens import falls
from grpodoctor.probe.attribution.variant import Variant


@dataclass(frozen=True, slots=True)
class Judged:
    """The causes of a closed gap by what happens without them."""

    proven: frozenset[str]
    """Without them the gap exceeds rounding, and no rival closes it in their place."""
    replaceable: Mapping[str, Edit]
    """A rival closes the gap in their place; that rival by cause."""


def judged_together(
    experiments: Experiments,
    final: Variant,
    steps: Sequence[Step],
    is_quiet: Callable[[Variant], bool],
) -> Judged:
    """Judge causes that together close a gap.

    Args:
        experiments: of the case.
        final: the variant without all causes, whose gap is rounding.
        steps: the accepted causes.
        is_quiet: whether a variant's gap is rounding.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    proven: set[str] = set()
    replaceable: dict[str, Edit] = {}
    for step in steps:
        changes = without_step(final.setup, step)
        if changes is None:
            continue
        without = experiments.vary(final, **changes)
        if is_quiet(without) or not falls(without.tokens, final.tokens):
            continue
        rival = next(
            (each for each in step.rivals if _closes(experiments, without, each, is_quiet)), None
        )
        if rival is not None:
            replaceable[step.cause] = rival
        elif step.can_be_proven:
            proven.add(step.cause)
    return Judged(frozenset(proven), replaceable)


def _closes(
    experiments: Experiments, without: Variant, rival: Edit, is_quiet: Callable[[Variant], bool]
) -> bool:
    """Whether another edit closes a gap, also with its number fitted next to the other causes."""
    setup = without.setup
    if edit_key(rival) in {edit_key(edit) for edit in setup.edits}:
        return False  # it is one of the other causes
    edits = (*setup.edits, rival)
    (learner_N,) = experiments.score_edits(setup, [edits])
    if learner_N is None:
        return False
    tokens = without.tokens.with_learner(learner_N[: without.tokens.sampler_N.size])
    placed = Variant(replace(setup, edits=edits), tokens)
    return is_quiet(placed) or is_quiet(refitted(experiments, placed, setup))
