"""Which side or place a cause belongs to, judged with all causes that were found."""

from __future__ import annotations

import json
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
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edit_causes.structure_causes import sums_values
from grpodoctor.probe.attribution.edits import Edit, inner_edit
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


def with_final_place(named: NamedCause, final: Variant | None) -> NamedCause:
    """A factor on what attention sums with its likeliest place, judged with the other causes.

    A factor on the values equals one on the output of attention. Values that are stored in few bits
    have a scale, which the engine must undo; other values have none.
    """
    if named.cause != "residual-scale" or final is None:
        return named
    edits = [inner_edit(edit) or edit for edit in final.setup.edits]
    is_stored = any(name in _STORED for name, _ in edits)
    of_values = [edit for edit in edits if edit[0] in _SCALES and sums_values(_module(edit))]
    if not is_stored or not of_values:
        return named
    title = cause_of(of_values[0]).title.format(side=final.setup.sides[0])
    return replace(named, cause="value-scale", title=title, remedies=(_RESCALE, *named.remedies))


def _module(edit: Edit) -> str:
    """The module that an edit scales: `self_attn`, or `2:self_attn.v_proj/out`."""
    return str(json.loads(edit[1])[0]).rpartition(":")[2].split("/")[0]


_STORED = frozenset({"kv_cache", "kv_saturation", "latent_cache"})
_SCALES = frozenset({"layer_scale", "output_scale", "site_scale", "site_scales"})
_RESCALE = (
    "Values must be read from the cache with the scale with which they were written: check v_scale "
    "after each weight sync, and that every kernel applies it once."
)
