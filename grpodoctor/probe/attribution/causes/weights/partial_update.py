"""Only a part of the elements of an update reached the sampler, or in a coarse format."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.edit_causes.update_causes import (
    ARRIVED,
    coarse_update_in_words,
    identity_of_update,
    partial_update_in_words,
)
from grpodoctor.probe.attribution.edits import (
    UPDATE_FORMAT,
    UPDATE_PART,
    EditFamily,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.checkpoint_edits import (
    edits_of_checkpoints,
    update_hypothesis,
)
from grpodoctor.probe.attribution.search.edit_search import Candidate
from grpodoctor.probe.attribution.search.edit_trials import rounded_to
from grpodoctor.probe.attribution.variant import Variant

_SHARES = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)
_DIGITS = (3, 2)
_COUNTS = ("", ":down", ":up", ":quantile")
"""Numbers of elements that a share is: rounded down or up, or those above a quantile."""
_FORMATS = ("sign", "int4", "int4/tensor", "int8", "int8/tensor", "fp8", "fp8/tensor", "mxfp4")
SPARSE = identity_of_update(UPDATE_PART)
_COARSE = identity_of_update(UPDATE_FORMAT)


class PartialUpdate(Cause):
    """Proven by a learner that has the same part of the update since another checkpoint.

    Which elements arrive is computed from both checkpoints: engines that send sparse updates
    choose them by the size of the change. The share is fitted.
    """

    id = "partial-update"
    title = SPARSE.title
    remedies = SPARSE.remedies
    is_surrogate = True
    uses_other_files = True
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is another checkpoint, and a learner that can compute with both."""
        return update_hypothesis(experiments, variant, 0.49)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Try each other checkpoint as the weights before the update."""
        found = edits_of_checkpoints(experiments, variant, _families)
        if not found:
            return None
        candidate, folder = found[0]
        return _result(variant, _as_counted(experiments, variant, candidate), folder)


def _families(folder: Path) -> list[EditFamily]:
    """Each part of the update since a checkpoint with several shares, and each format."""
    parts = [EditFamily(UPDATE_PART, _SHARES, "number", 1.0, f"{how}|{folder}") for how in ARRIVED]
    return [*parts, EditFamily(UPDATE_FORMAT, _FORMATS, "choice", None, str(folder))]


def _as_counted(experiments: Experiments, variant: Variant, candidate: Candidate) -> Candidate:
    """The candidate with the number of elements as engines count them, if that fits better.

    A share of a small tensor is no whole number of elements, so the gap has steps, and the share
    was fitted with another rule.
    """
    name, content = candidate.edit
    place, value = json.loads(content)
    how, _, folder = place.partition("|")
    if name != UPDATE_PART or how != "largest" or not experiments.is_loud(candidate.after.gap):
        return candidate
    best = candidate
    shares = dict.fromkeys((value, *(rounded_to(value, digits) for digits in _DIGITS)))
    for count, share in product(_COUNTS, shares):
        edit = (name, json.dumps([f"{how}{count}|{folder}", share]))
        after = experiments.vary(variant, edits=(*variant.setup.edits, edit))
        if after.gap < best.after.gap:
            best = Candidate(edit, after, after.gap)
    return best


def _result(variant: Variant, candidate: Candidate, folder: Path) -> ExperimentResult:
    (name, content), side = candidate.edit, variant.setup.sides[1]
    place, value = json.loads(content)
    if name == UPDATE_FORMAT:
        update = coarse_update_in_words(str(folder), str(value))
    else:
        update = partial_update_in_words(place).format(f"{value:.3g}")
    return ExperimentResult(
        summary=(
            f"with {update} in the {side}, k3 falls from {variant.gap:.2g} to "
            f"{candidate.after.gap:.2g} nats per token"
        ),
        after=candidate.after,
        details=(update,),
        figures={"share": value} if name == UPDATE_PART else {},
        identity=_COARSE if name == UPDATE_FORMAT else SPARSE,
    )
