"""Which side a cause belongs to, judged with all causes that were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.case import Case
from grpodoctor.probe.attribution.causes.sampling.temperature import (
    Temperature,
    side_under_truncation,
)
from grpodoctor.probe.attribution.causes.sampling.truncation import (
    describe_truncation,
    is_truncated,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.engines.jobs import BudgetSpentError, requested_edits
from grpodoctor.probe.results.results import NamedCause


def notes_on_side(case: Case, named: Sequence[NamedCause], final: Variant | None) -> list[str]:
    """Why the sampler is named, if edits of the learner's computation explain the gap."""
    if final is None or not named or final.setup.swapped or not case.learner.kind.can_alter:
        return []
    requested = {name for name, _ in requested_edits(case.sampling, case.sampler_facts.processors)}
    if not any(name not in requested for name, _ in final.setup.edits):
        return []
    return [
        "The sampler is named because the learner computes what its files say; if the learner's "
        "model is changed after loading, the learner may be the side that differs."
    ]


def with_final_side(
    experiments: Experiments, named: NamedCause, final: Variant | None
) -> NamedCause:
    """A temperature with the side that is wrong, judged with the truncation that was found."""
    if named.cause != Temperature.id or "learner" not in named.figures or final is None:
        return named
    setup = final.setup
    if setup.swapped or not is_truncated(setup.processing):
        return named
    try:
        side = side_under_truncation(experiments, final)
    except (EngineError, BudgetSpentError):
        side = "which side is wrong was not tested"
    best, learner = setup.processing.temperature, named.figures["learner"]
    summary = (
        f"below {describe_truncation(setup.processing)}, the sampler's log-probabilities have "
        f"temperature {best:.3g}, the learner's {learner:.3g}: {side}"
    )
    return replace(named, summary=summary)
