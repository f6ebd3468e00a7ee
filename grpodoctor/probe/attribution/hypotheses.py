"""The causes to examine in a gap, and guesses without an experiment."""

from __future__ import annotations

from collections.abc import Iterator

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.catalogue import all_causes
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant


def hypotheses(
    experiments: Experiments, variant: Variant, *, peels: bool, quiet: bool, with_edits: bool
) -> Iterator[tuple[Cause, Hypothesis]]:
    """The causes to examine, strongest first, arithmetic before engines.

    Args:
        experiments: of the case.
        variant: the gap.
        peels: whether causes that can be removed are wanted, or the others.
        quiet: whether the gap is rounding.
        with_edits: whether to examine causes that can have several instances.
    """
    candidates = []
    for cause in all_causes():
        if cause.peels != peels or (cause.id in experiments.named and not cause.repeats):
            continue
        if (cause.repeats and not with_edits) or not cause.is_relevant(variant, quiet=quiet):
            continue
        if variant.setup.swapped and not cause.is_symmetric:
            continue
        hypothesis = cause.hypothesize(experiments, variant)
        if hypothesis is not None:
            candidates.append((cause, hypothesis))
    candidates.sort(
        key=lambda pair: (pair[0].stage, pair[0].cost > 0, -pair[1].strength, pair[0].cost)
    )
    yield from candidates


def guesses(experiments: Experiments, variant: Variant) -> Iterator[tuple[Cause, ExperimentResult]]:
    """Possible causes of a mostly unexplained gap that no experiment could test."""
    for cause in all_causes():
        if cause.id not in experiments.named:
            outcome = cause.remainder(experiments, variant)
            if outcome is not None:
                yield cause, outcome
