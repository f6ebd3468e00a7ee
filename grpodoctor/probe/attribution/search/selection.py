"""Model selection: which causes belong to the explanation of a gap."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

from grpodoctor.probe.attribution.base import Cause, ExperimentResult
from grpodoctor.probe.attribution.edits import Edit, Edits
from grpodoctor.probe.attribution.exact_responses import ExactResponses, closed_share
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import TYPICAL, falls
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing

PROVEN = 0.5
"""Below this share of the remaining gap, a removed cause may only have changed the rounding."""
WORTH_NAMING = 0.03
"""Share of the whole gap from which a further cause is named without further conditions."""
CLOSED = 0.005
"""Share of a gap that may remain if an imitated cause explains it: its rounding is not quite that
of the engine that it imitates. What remains below this share may be the imitation's error."""
NEARLY_WHOLE = 0.98
"""Share of the remaining gap that only its cause removes, even if the cause is imitated."""
_BETTER = 0.5
"""Share of what the first explanation leaves that a better one may leave."""
_NEEDED = 1.05
"""Factor by which the gap must grow without a cause that is needed."""
_FITTED = 0.1
"""Relative change of a number that fitting it again explains."""
_LEARNER_SIDE = ("learner", "own_prompts", "behind", "replay")
_SAMPLER_SIDE = ("rescored", "shift", "transform", "without_ends")
WHOLE = 0.9
"""A cause that explains this share of the remaining gap is accepted without trying others."""
_EXACT_PART = 0.89
"""What a cause that makes some responses equal counts as, just below `WHOLE`."""
_FINITE = 0.98
"""Share of the finite tokens that an experiment must keep; losing more removes tokens, not the
gap."""


@dataclass(frozen=True, slots=True)
class Step:
    """A cause that was accepted: the setups before and after its removal."""

    cause: str
    before: Setup
    after: Setup
    can_be_proven: bool = True
    """Whether the experiment proves the cause if it removes enough."""
    rivals: Edits = ()
    """Edits of other causes that left about as much of the gap at that time."""
    leaves_error: bool = False
    """Whether a part of what remains after it may be the error of an imitation."""
    equals_some: bool = False
    """Whether it made some responses equal, while others still differ."""


@dataclass(slots=True)
class TriedCause:
    """A cause whose experiment was run."""

    cause: Cause
    outcome: ExperimentResult
    share: float
    """Share of the experiment's own gap that it removed."""
    part: float
    """That gap as a share of the remaining one: if an engine's scores replace the reported values,
    they may agree where the reported values did not."""
    typical: float = 0.0
    """Share of the typical token's gap that it removed, if nearly whole; else 0."""
    exact: ExactResponses | None = None
    """The responses that it made equal to rounding, if more than by chance."""

    @property
    def explained(self) -> float:
        """Share of the remaining gap that the cause explains."""
        return self.share * self.part

    @property
    def evidence(self) -> float:
        """The share by which causes are compared: of the mean, or of the typical token.

        Some responses become equal only by their cause, or by one that coincides with it there. So
        only a cause that explains nearly the whole gap is preferred.
        """
        shown = _EXACT_PART if self.exact else 0.0
        return max(self.share, self.typical, shown) * self.part

    @property
    def is_enough(self) -> bool:
        """Whether the cause is accepted without trying others."""
        return self.evidence >= _enough_share(self.cause) or self.outcome.is_conclusive

    @property
    def id(self) -> str:
        """The name under which the cause would be reported."""
        return self.outcome.identity.id if self.outcome.identity else self.cause.id

    def step(self, before: Setup, after: Setup) -> Step:
        """The cause, accepted in a setup."""
        outcome = self.outcome
        return Step(
            self.id,
            before,
            after,
            can_be_proven=outcome.confidence == "proven" or bool(outcome.rivals),
            rivals=outcome.rivals,
            leaves_error=self.cause.is_surrogate and not outcome.is_exact,
            equals_some=self.exact is not None,
        )


def with_exact(tried: TriedCause) -> ExperimentResult:
    """The result of a cause; it says which responses are equal if others are not."""
    exact, outcome = tried.exact, tried.outcome
    if exact is None:
        return outcome
    words = f"equal to rounding with it: {exact.words}"
    figures = {**outcome.figures, "exact_responses": float(exact.exact_B.sum())}
    return replace(outcome, details=(*outcome.details, words), figures=figures)


def is_worth_accepting(
    share: float, *, left: float, is_settled: bool, has_imitated: bool, is_first: bool
) -> bool:
    """Whether a cause explains more than the error of the causes accepted before it.

    A gap that remains above rounding has a further cause, however small it is compared with the
    whole gap: a cause that is removed leaves nothing of its own. A cause that is imitated leaves
    the imitation's error, a part of which another imitation may fit.

    Args:
        share: of the remaining gap that the cause explains.
        left: share of the whole gap that remains before it.
        is_settled: whether only rounding remains after it.
        has_imitated: whether a cause accepted before was only imitated.
        is_first: whether no cause was accepted before.
    """
    if is_first or is_settled or share * left >= WORTH_NAMING:
        return True
    may_be_error = has_imitated and left < CLOSED
    return share >= (NEARLY_WHOLE if may_be_error else PROVEN)


def is_sure(share: float, *, left: float, is_settled: bool) -> bool:
    """Whether an accepted cause may be called proven."""
    return is_settled or (share >= PROVEN and share * left >= WORTH_NAMING)


def is_better_explanation(left: float, *, than: float, is_quiet: bool) -> bool:
    """Whether other causes explain a gap better: they close it, or leave less than half as much."""
    return is_quiet or left < _BETTER * than


def first_causes(tried: Sequence[TriedCause], besides: str) -> list[TriedCause]:
    """The strongest result of each cause, strongest first, without the one named `besides`."""
    strongest: dict[str, TriedCause] = {}
    for each in sorted(tried, key=lambda one: -one.evidence):
        if each.id != besides:
            strongest.setdefault(each.id, each)
    return list(strongest.values())


def unneeded(
    experiments: Experiments, final: Variant, steps: Sequence[Step]
) -> tuple[list[str], Variant]:
    """Causes whose removal the later causes make superfluous, and the variant without them.

    Each cause is restored in the final setup. It is needed if the gap grows again, by more than
    chance among prompts.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    dropped: list[str] = []
    if len(steps) < 2:
        return dropped, final
    for step in steps:
        changes = without_step(final.setup, step)
        if changes is None or len(dropped) == len(steps) - 1:
            continue
        without = experiments.vary(final, **changes)
        grows = without.gap > _NEEDED * final.gap and falls(without.tokens, final.tokens)
        closed = closed_share(without.tokens, final.tokens, experiments.limit)
        if not grows and closed < TYPICAL:
            dropped.append(step.cause)
            final = without
    return dropped, final


def gaps_in_order(
    experiments: Experiments, final: Variant, steps: Sequence[Step]
) -> tuple[float, ...] | None:
    """The gap before each cause and after the last one; None if one cannot be restored alone.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    gaps, variant = [final.gap], final
    for step in reversed(steps):
        changes = without_step(variant.setup, step)
        if changes is None:
            return None
        variant = experiments.vary(variant, **changes)
        gaps.append(variant.gap)
    return tuple(reversed(gaps))


@dataclass(frozen=True, slots=True)
class RemovedShare:
    """What the removal of a cause does, in the order of the causes."""

    before: float
    """k3 before it."""
    after: float
    share: float
    """Of the whole gap."""


def removed_shares(
    steps: Sequence[Step], gaps: Sequence[float], whole: float
) -> dict[str, RemovedShare]:
    """A share of the gap divided among causes by what each removes.

    Args:
        steps: the causes.
        gaps: before each of them and after the last one.
        whole: share of the gap that they explain together.
    """
    removed = [max(before - after, 0.0) for before, after in pairwise(gaps)]
    total = sum(removed)
    return {
        step.cause: RemovedShare(before, after, whole * part / total if total > 0 else 0.0)
        for step, (before, after), part in zip(steps, pairwise(gaps), removed, strict=True)
    }


def without_step(final: Setup, step: Step) -> dict[str, Any] | None:
    """The changes that restore a cause; None if it cannot be restored alone."""
    before, after = step.before, step.after
    if any(getattr(before, name) != getattr(after, name) for name in _SAMPLER_SIDE):
        return None
    changes: dict[str, Any] = {}
    for name in _LEARNER_SIDE:
        if getattr(before, name) != getattr(after, name):
            if getattr(final, name) != getattr(after, name):
                return None  # a later cause changed the same
            changes[name] = getattr(before, name)
    if before.processing != after.processing:
        if final.rescored != after.rescored:
            return None  # it applies to both columns by now, so that no gap can show it
        restored = _restored_processing(final.processing, before.processing, after.processing)
        if restored is None:
            return None
        changes["processing"] = restored
    added = {edit_key(edit) for edit in after.edits} - {edit_key(edit) for edit in before.edits}
    if added:
        changes["edits"] = tuple(edit for edit in final.edits if edit_key(edit) not in added)
    return changes or None


def _restored_processing(
    final: Processing, before: Processing, after: Processing
) -> Processing | None:
    """The final processing without a cause's changes; None if a later cause changed the same."""
    changed = [
        each.name
        for each in fields(after)
        if getattr(before, each.name) != getattr(after, each.name)
    ]
    for name in changed:
        fitted, now = getattr(after, name), getattr(final, name)
        if abs(now - fitted) > _FITTED * abs(fitted):
            return None
    return replace(final, **{name: getattr(before, name) for name in changed})


def edit_key(edit: Edit) -> tuple[str, str]:
    """What an edit changes, whatever the number or the tensors that were fitted."""
    name, content = edit
    value = json.loads(content)
    if isinstance(value, dict):  # tensors of a checkpoint, which are searched again
        return name, str(value["from"])
    is_named = isinstance(value, list) and value and isinstance(value[-1], float)
    if is_named:
        return name, json.dumps(value[:-1])
    return name, "" if isinstance(value, float) else content


def _enough_share(cause: Cause) -> float:
    """Share of the remaining gap from which a cause is accepted without trying others."""
    return NEARLY_WHOLE if cause.is_surrogate else WHOLE


def agreement(before: Variant, after: Variant) -> str:
    """What the remaining gap says about two engines, as a verb."""
    return "agrees with" if after.gap < CLOSED * before.gap else "comes closer to"


def keeps_tokens(before: Variant, after: Variant) -> bool:
    """Whether nearly all tokens kept a finite log-probability."""
    if (after.setup.shift, after.setup.transform) != (before.setup.shift, before.setup.transform):
        return True  # a shift takes tokens at one end out of the comparison
    lost_N = before.tokens.finite_N & after.tokens.counted_N & ~after.tokens.finite_N
    return bool(lost_N.sum() <= (1 - _FINITE) * before.tokens.finite_N.sum())
