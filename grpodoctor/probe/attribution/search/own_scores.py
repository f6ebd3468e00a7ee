"""The sampler's scores of its own tokens: what a fault changes when it generates, and when not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.selection import Step
from grpodoctor.probe.attribution.tokens import Floats, difference_gap
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing


def own_scores(experiments: Experiments, variant: Variant) -> Floats | None:
    """The sampler's scores of its tokens in one pass; None if it cannot score."""
    setup = variant.setup
    try:
        scores_N = experiments.score(experiments.case.sampler, setup.processing)
    except EngineError:
        return None
    return scores_N[: variant.tokens.sampler_N.size]


def differ(experiments: Experiments, variant: Variant, one_N: Floats, other_N: Floats) -> bool:
    """Whether two columns of the variant's tokens differ by more than rounding."""
    at_N = variant.tokens.counted_N & np.isfinite(one_N) & np.isfinite(other_N)
    return bool(at_N.any() and experiments.is_loud(difference_gap(one_N[at_N], other_N[at_N])))


def in_one_pass(experiments: Experiments, variant: Variant) -> Variant | None:
    """The variant with the sampler's own scores as its values, if these are a third column.

    None if they agree with the reported values or with the learner, or if the sampler cannot score:
    then they do not divide the gap into two parts.

    Raises:
        BudgetSpentError: if the time budget is used up.
    """
    setup, case = variant.setup, experiments.case
    other = setup.swapped or setup.rescored or setup.shift or setup.transform or setup.replay
    if other or setup.processing != Processing():
        return None
    try:
        between = experiments.vary(variant, rescored=case.sampler)
    except EngineError:
        return None
    own_N, reported_N = between.tokens.sampler_N, variant.tokens.sampler_N
    is_third = experiments.is_loud(between.gap) and differ(experiments, variant, own_N, reported_N)
    return between if is_third else None


def as_reported(experiments: Experiments, reported: Variant, explained: Variant) -> Variant | None:
    """The reported values under the causes that explain the sampler's own scores.

    None if a cause changed more than the learner's model.

    Raises:
        EngineError: if the learner cannot score.
        BudgetSpentError: if the time budget is used up.
    """
    final, own = explained.setup, reported.setup
    expected = replace(own, rescored=final.rescored, learner=final.learner, edits=final.edits)
    if expected != final:
        return None
    return experiments.vary(reported, learner=final.learner, edits=final.edits)


def step_as_reported(step: Step, reported: Setup) -> Step:
    """A cause that was accepted among the sampler's own scores, for its reported values."""
    before, after = (
        replace(each, rescored=reported.rescored) for each in (step.before, step.after)
    )
    return replace(step, before=before, after=after)
