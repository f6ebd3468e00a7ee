"""A removal of two causes at once, as two steps."""

from __future__ import annotations

from dataclasses import replace

from grpodoctor.probe.attribution.base import ExperimentResult, Identity
from grpodoctor.probe.attribution.causes.sampling.temperature import Temperature
from grpodoctor.probe.attribution.causes.sampling.truncation import Truncation, describe_truncation
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.selection import TriedCause
from grpodoctor.probe.attribution.variant import Variant


def in_steps(
    experiments: Experiments, tried: TriedCause, before: Variant, after: Variant
) -> list[TriedCause]:
    """The accepted cause; a temperature that was fitted together with a truncation comes first.

    A truncation hides the temperature below it, so they are found together. Each has a remedy of
    its own, and is judged by what happens without it.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    if tried.outcome.parts:
        *others, last = tried.outcome.parts
        parts = (*others, replace(last, after=after))  # numbers may have been fitted again
        return [_part(tried, each, before, after) for each in parts]
    old, new = before.setup.processing, after.setup.processing
    if tried.cause.id != Truncation.id or old.temperature == new.temperature:
        return [tried]
    between = experiments.vary(before, processing=replace(old, temperature=new.temperature))
    cut = describe_truncation(new)
    heat = ExperimentResult(
        summary=(
            f"below {cut}, the sampler's log-probabilities have temperature {new.temperature:.3g}, "
            f"the learner's {old.temperature:.3g}"
        ),
        after=between,
        figures={"fitted": new.temperature, "learner": old.temperature},
        identity=Identity(Temperature.id, Temperature.title, Temperature.remedies),
    )
    rest = replace(tried.outcome, before=between)
    return [
        TriedCause(tried.cause, heat, _share(before, between), tried.part),
        TriedCause(tried.cause, rest, _share(between, after), 1.0),
    ]


def _part(tried: TriedCause, part: ExperimentResult, before: Variant, after: Variant) -> TriedCause:
    """One of several causes that were found together."""
    return TriedCause(tried.cause, part, _share(part.before or before, part.after or after), 1.0)


def _share(before: Variant, after: Variant) -> float:
    return 1 - after.gap / before.gap if before.gap > 0 else 0.0
