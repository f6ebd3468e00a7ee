"""Proof of several causes that close a gap together.

Next to a second fault, a cause may remove little of the gap, or others may fit as well. Once the
gap is closed, each cause can be judged alone: with it restored, or with another edit in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.refit import refitted
from grpodoctor.probe.attribution.search.selection import Step, edit_key, without_step
from grpodoctor.probe.attribution.tokens import falls
from grpodoctor.probe.attribution.variant import Variant

_CLOSEST = 3
"""Rivals of a cause that are tried in its place, those that fitted best: each is fitted again."""


@dataclass(frozen=True, slots=True)
class Rival:
    """An edit in place of a cause."""

    edit: Edit
    placed: Variant
    """With the edit and all other causes."""
    step: Step
    """The edit as an accepted cause."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The causes of a closed gap by what happens without them."""

    proven: frozenset[str]
    """Without them the gap exceeds rounding, and no rival closes it in their place."""
    replaceable: Mapping[str, Rival]
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
    replaceable: dict[str, Rival] = {}
    for step in steps:
        changes = without_step(final.setup, step)
        if changes is None:
            continue
        without = experiments.vary(final, **changes)
        if is_quiet(without) or not falls(without.tokens, final.tokens):
            continue
        placed = (_placed(experiments, without, each) for each in step.rivals)
        rival = next((each for each in placed if each and is_quiet(each.placed)), None)
        if rival is not None:
            replaceable[step.cause] = rival
        elif step.can_be_proven:
            proven.add(step.cause)
    return Judged(frozenset(proven), replaceable)


def _placed(experiments: Experiments, without: Variant, edit: Edit) -> Rival | None:
    """Another edit in place of a cause, with its number fitted next to the other causes."""
    setup = without.setup
    if edit_key(edit) in {edit_key(each) for each in setup.edits}:
        return None  # it is one of the other causes
    edits = (*setup.edits, edit)
    (learner_N,) = experiments.score_edits(setup, [edits])
    if learner_N is None:
        return None
    tokens = without.tokens.with_learner(learner_N[: without.tokens.sampler_N.size])
    placed = Variant(replace(setup, edits=edits), tokens)
    placed = refitted(experiments, placed, setup)
    edit = placed.setup.edits[-1]
    return Rival(edit, placed, Step(cause_of(edit).id, setup, placed.setup, leaves_error=True))


@dataclass(frozen=True, slots=True)
class Simpler:
    """A rival in place of a cause, which closes a gap, often with fewer causes."""

    replaced: str
    rival: Rival
    dropped: tuple[str, ...]
    """Causes that are not needed next to the rival."""
    final: Variant

    def steps(self, steps: Sequence[Step]) -> list[Step]:
        """The accepted causes with the rival in place of one, without those that are spare."""
        kept = [each for each in steps if each.cause not in self.dropped]
        return [self.rival.step if each.cause == self.replaced else each for each in kept]


def closing_rival(
    experiments: Experiments,
    variant: Variant,
    steps: Sequence[Step],
    is_quiet: Callable[[Variant], bool],
) -> Simpler | None:
    """A rival that closes a gap in place of a cause that leaves a part of it; None without one.

    What an imitation leaves must not look like a further cause if another edit that fitted as well
    leaves nothing.

    Args:
        experiments: of the case.
        variant: the variant without the causes, whose gap is no rounding.
        steps: the accepted causes.
        is_quiet: whether a variant's gap is rounding.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    for step in steps:
        changes = without_step(variant.setup, step) if step.rivals else None
        if changes is None or changes.keys() != {"edits"}:
            continue
        without = experiments.vary(variant, **changes)
        replaced = tuple(each for each in variant.setup.edits if each not in without.setup.edits)
        others = {each.cause for each in steps if each is not step}
        for edit in [each for each in step.rivals if cause_of(each).id not in others][:_CLOSEST]:
            rival = _placed(experiments, without, edit)
            if rival is not None and is_quiet(rival.placed):
                rival = replace(rival, step=replace(rival.step, rivals=replaced))
                return Simpler(step.cause, rival, (), rival.placed)
    return None


def simpler(
    experiments: Experiments,
    steps: Sequence[Step],
    rivals: Mapping[str, Rival],
    is_quiet: Callable[[Variant], bool],
) -> Simpler | None:
    """A rival in place of a cause, next to which another cause is not needed; None without one.

    A number that was fitted to a part of a second cause leaves an error, and a third cause may
    imitate that.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    for cause, rival in rivals.items():
        others = [step for step in steps if step.cause != cause]
        final, dropped = _without_spare(experiments, rival.placed, others, is_quiet)
        if dropped:
            return Simpler(cause, rival, tuple(dropped), final)
    return None


def _without_spare(
    experiments: Experiments,
    variant: Variant,
    steps: Sequence[Step],
    is_quiet: Callable[[Variant], bool],
) -> tuple[Variant, list[str]]:
    """A variant without the edits that leave its gap closed, and their causes."""
    dropped: list[str] = []
    for step in steps:
        changes = without_step(variant.setup, step)
        if changes is None or changes.keys() != {"edits"}:
            continue
        without = experiments.vary(variant, **changes)
        if is_quiet(without):
            variant = without
            dropped.append(step.cause)
    return variant, dropped
