"""Proof of several causes that close a gap together.

Next to a second fault, a cause may remove little of the gap, or others may fit as well. Once the
gap is closed, each cause can be judged alone: with it restored, or with another edit in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.selection import Step, edit_key, without_step
from grpodoctor.probe.attribution.tokens import falls
from grpodoctor.probe.attribution.variant import Variant


def proven_together(
    experiments: Experiments,
    final: Variant,
    steps: Sequence[Step],
    is_quiet: Callable[[Variant], bool],
) -> set[str]:
    """The causes without which a closed gap exceeds rounding, and that no rival can replace.

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
    for step in steps:
        changes = without_step(final.setup, step) if step.can_be_proven else None
        if changes is None:
            continue
        without = experiments.vary(final, **changes)
        opens = not is_quiet(without) and falls(without.tokens, final.tokens)
        rivals = (_with_rival(experiments, without, each) for each in step.rivals)
        if opens and not any(rival is not None and is_quiet(rival) for rival in rivals):
            proven.add(step.cause)
    return proven


def _with_rival(experiments: Experiments, without: Variant, rival: Edit) -> Variant | None:
    """The other causes with another edit in place of one; None if it is one of them already."""
    setup = without.setup
    if edit_key(rival) in {edit_key(edit) for edit in setup.edits}:
        return None
    edits = (*setup.edits, rival)
    (learner_N,) = experiments.score_edits(setup, [edits])
    if learner_N is None:
        return without  # it does not fit next to the others
    tokens = without.tokens.with_learner(learner_N[: without.tokens.sampler_N.size])
    return Variant(replace(setup, edits=edits), tokens)
