"""Two causes that were found together, as a result of an experiment."""

from __future__ import annotations

from dataclasses import replace

from grpodoctor.probe.attribution.base import ExperimentResult, Identity
from grpodoctor.probe.attribution.causes.sampling.temperature import Temperature
from grpodoctor.probe.attribution.causes.sampling.truncation import Truncation, describe_truncation
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import OTHER_WEIGHTS, Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.pair_search import Change, ClosedPair
from grpodoctor.probe.attribution.search.refit_tensors import tensors_of
from grpodoctor.probe.attribution.search.selection import CLOSED
from grpodoctor.probe.attribution.search.tensor_labels import labels_of
from grpodoctor.probe.attribution.tensors import PARTIAL_SYNC, tensors_in_words
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described


def result_of(experiments: Experiments, variant: Variant, pair: ClosedPair) -> ExperimentResult:
    """The result of two changes, with a part for each one.

    Raises:
        EngineError: if the learner fails.
        BudgetSpentError: if the time budget is used up.
    """
    first, second = pair.first, pair.second
    between = _with(experiments, variant, first)
    if between.gap >= variant.gap:  # alone it undoes a part of the other's effect
        other = _with(experiments, variant, second)
        if other.gap < between.gap:
            first, second, between = second, first, other
    little = pair.after.gap < CLOSED * variant.gap
    is_closed = little and not experiments.is_loud(pair.after.gap)
    parts: tuple[ExperimentResult, ...] = (
        _part(experiments, variant, between, first, _rivals(pair, first, second)),
        _part(experiments, between, pair.after, second, _rivals(pair, second, first)),
    )
    if not is_closed:  # among half a million pairs, many leave little
        parts = tuple(replace(part, confidence="likely", rivals=()) for part in parts)
    is_one = len({part.identity.id for part in parts if part.identity}) == 1
    return ExperimentResult(
        summary="; ".join(part.summary for part in parts),
        after=pair.after,
        confidence="proven" if is_closed else "likely",
        details=tuple(each for part in parts for each in part.details),
        figures={"undeclared": 1.0},
        identity=parts[0].identity,
        parts=() if is_one else parts,
    )


def _with(experiments: Experiments, variant: Variant, change: Change) -> Variant:
    setup = change.applied(variant.setup)
    return experiments.vary(variant, processing=setup.processing, edits=setup.edits)


def _part(
    experiments: Experiments,
    before: Variant,
    after: Variant,
    change: Change,
    rivals: tuple[Edit, ...],
) -> ExperimentResult:
    words, identity, details = _named(experiments, after, change)
    return ExperimentResult(
        summary=(
            f"with {words}, found together with another change, k3 changes from {before.gap:.2g} "
            f"to {after.gap:.2g} nats per token"
        ),
        before=before,
        after=after,
        details=details,
        figures={"undeclared": 1.0},
        identity=identity,
        rivals=rivals,
    )


def _named(
    experiments: Experiments, after: Variant, change: Change
) -> tuple[str, Identity, tuple[str, ...]]:
    """A change in words, its name, and details."""
    side = after.setup.sides[0]
    if change.truncation is not None:
        identity = Identity(Truncation.id, Truncation.title, Truncation.remedies)
        return describe_truncation(after.setup.processing), identity, ()
    if change.edit is None:
        identity = Identity(Temperature.id, Temperature.title, Temperature.remedies)
        return f"temperature {change.temperature:.3g}", identity, ()
    if change.edit[0] == OTHER_WEIGHTS:
        folder, taken, every = tensors_of(experiments, after.setup, change.edit)
        labels = labels_of(taken, every)
        return f"{tensors_in_words(labels)} of {folder.name}", PARTIAL_SYNC, labels
    cause = cause_of(change.edit)
    identity = Identity(cause.id, cause.title.format(side=side), (cause.remedy,))
    return described(change.edit), identity, (described(change.edit),)


def _rivals(pair: ClosedPair, change: Change, partner: Change) -> tuple[Edit, ...]:
    """Edits of other causes that were computed next to the other change and left little, too."""
    found: dict[Edit, None] = {}
    for one, other in pair.others:
        for each, second in ((one, other), (other, one)):
            if second.place != partner.place or each.edit is None or each.edit[0] == OTHER_WEIGHTS:
                continue
            if change.edit is None or cause_of(each.edit).id != cause_of(change.edit).id:
                found[each.edit] = None
    return tuple(found)
