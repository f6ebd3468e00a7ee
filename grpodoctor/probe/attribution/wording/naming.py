"""The causes as they are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Identity
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.refit_tensors import tensor_edit, tensors_of
from grpodoctor.probe.attribution.search.selection import CLOSED, RemovedShare
from grpodoctor.probe.attribution.search.tensor_labels import labels_of
from grpodoctor.probe.attribution.tensors import tensors_in_words
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.attribution.wording.edit_words import described
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.results.results import Confidence, NamedCause

ONLY_IN = "only in "
"""How the detail of a cause begins that states the responses or tokens with it."""
ALSO_FITS = "also fits: "
"""How the detail of a cause begins that lists a rival."""
_OWN_PATH = "generation-path"
"""The cause for a side that computes other values while it generates than when it scores."""


def named_cause(
    cause: Cause,
    outcome: ExperimentResult,
    explained: float | None,
    figures: Mapping[str, float],
    *,
    is_sure: bool,
    where: str,
) -> NamedCause:
    """A cause with the result of its experiment.

    Args:
        cause: whose experiment was made.
        outcome: its result.
        explained: share of the whole gap; None if unknown.
        figures: further numbers.
        is_sure: whether the experiment removed enough for a proof.
        where: the responses or tokens to which the search was limited; empty for all.
    """
    confidence: Confidence = outcome.confidence
    if confidence == "proven" and not is_sure:
        confidence = "likely"
    name = outcome.identity or Identity(cause.id, cause.title, cause.remedies)
    return NamedCause(
        cause=name.id,
        title=name.title,
        confidence=confidence,
        explained=explained,
        summary=outcome.summary,
        details=(*outcome.details, *((f"{ONLY_IN}{where}",) if where else ())),
        figures={**figures, **outcome.figures},
        remedies=name.remedies,
    )


def rank(named: NamedCause) -> tuple[bool, float, int]:
    """Sorts causes by their share of the gap, then by certainty.

    Routers that choose other experts follow all others, unless a replay proves them: any change of
    the computation flips experts, so they may be its consequence.
    """
    certainty = {"proven": 0, "likely": 1, "possible": 2}[named.confidence]
    is_consequence = named.cause == "router-flips" and named.confidence != "proven"
    share = named.explained if named.explained is not None else -1.0
    return is_consequence, -share, certainty


def as_judged(named: NamedCause, proven: Set[str], rivals: Mapping[str, str]) -> NamedCause:
    """A cause of a closed gap, as it was judged next to the others.

    Args:
        named: the cause.
        proven: causes that no rival can replace.
        rivals: for causes that one can replace, its description.
    """
    if named.cause in proven:
        details = tuple(each for each in named.details if not each.startswith(ALSO_FITS))
        return replace(named, confidence="proven", details=details)
    return as_likely(named, rivals[named.cause]) if named.cause in rivals else named


def replaced_by(named: NamedCause, edit: Edit, final: Variant) -> NamedCause:
    """Another edit in place of a named one."""
    cause, (side, other_side) = cause_of(edit), final.setup.sides
    return replace(
        named,
        cause=cause.id,
        title=cause.title.format(side=side),
        confidence="likely",
        summary=(
            f"with {described(edit)} next to the other causes, the {other_side} agrees with the "
            f"{side}: k3 falls to {final.gap:.2g} nats per token"
        ),
        details=(described(edit),),
        remedies=(cause.remedy,),
    )


def as_likely(named: NamedCause, rival: str = "") -> NamedCause:
    """A cause that is not proven, because of a rival if one is given."""
    fits = f"{ALSO_FITS}{rival}"
    details = named.details if not rival or fits in named.details else (*named.details, fits)
    confidence: Confidence = "likely" if named.confidence == "proven" else named.confidence
    return replace(named, confidence=confidence, details=details)


def with_share(named: NamedCause, removed: RemovedShare) -> NamedCause:
    """A cause with its share of the gap after others were dropped."""
    figures = {**named.figures, "gap_before": removed.before, "gap_after": removed.after}
    words = (
        f"next to the other named causes, k3 falls from {removed.before:.2g} to "
        f"{removed.after:.2g} nats per token"
    )
    details = (*named.details, words)
    return replace(named, explained=removed.share, figures=figures, details=details)


def leaves_much(named: NamedCause, gap: float) -> bool:
    """Whether a gap that remains is more than an imitated cause's error."""
    return gap >= CLOSED * named.figures.get("gap_before", 0.0)


def doubtful_errors(named: Sequence[NamedCause], imitated: Set[str]) -> frozenset[str]:
    """The small imitated causes that may be the error of a large one.

    A number that is not quite right leaves an error if the large cause is not proven. A fault that
    also acts on the padding of generation leaves a difference between generating and scoring, even
    if the large cause is proven: the learner reads no padding.

    Args:
        named: all named causes.
        imitated: ids of those whose experiment imitates the cause.
    """
    small, large = set[str](), list[NamedCause]()
    for each in named:
        if each.cause in imitated and (each.explained or 0.0) < CLOSED:
            small.add(each.cause)
        elif each.cause in imitated:
            large.append(each)
    is_doubtful = any(each.confidence != "proven" for each in large)
    if is_doubtful:
        return frozenset(small)
    return frozenset(small & {_OWN_PATH}) if large else frozenset()


def with_final_tensors(
    experiments: Experiments, named: NamedCause, final: Variant | None
) -> NamedCause:
    """A named cause with the tensors of the final setup, if they were searched again."""
    edit = tensor_edit(final.setup.edits) if final is not None else None
    if named.cause != "partial-sync" or edit is None or final is None:
        return named
    try:
        folder, taken, every = tensors_of(experiments, final.setup, edit)
    except (EngineError, BudgetSpentError):  # the first tensors stay named
        return named
    labels = labels_of(taken, every)
    if labels == named.details[: len(labels)]:
        return named
    side, other_side = final.setup.sides
    summary = (
        f"with {tensors_in_words(labels)} of {folder.name} in the {other_side} next to the other "
        f"causes, k3 against the {side} falls to {final.gap:.2g} nats per token"
    )
    figures = {**named.figures, "tensors": float(len(taken))}
    where = tuple(each for each in named.details if each.startswith(ONLY_IN))
    return replace(named, summary=summary, details=(*labels, *where), figures=figures)
