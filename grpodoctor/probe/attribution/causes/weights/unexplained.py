"""No experiment explains the gap: what is known, and the next experiment."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis, Identity
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.localisation.description import facts
from grpodoctor.probe.attribution.localisation.locate import Location, located_once
from grpodoctor.probe.attribution.tensors import given_checkpoints
from grpodoctor.probe.attribution.variant import Variant

_SHOWN = 12
_NEXT = (
    "Sync the sampler's weights once, or restart it from the learner's files, and probe again. If "
    "the gap disappears, the sampler had old weights.",
    "Give the sampler's checkpoint with --stale DIR, or compare checksums of the tensors that the "
    "sampler holds with the learner's.",
    "Run the sampler's model directory in transformers as sampler: if that pair agrees, the "
    "sampling engine computes differently; if not, the files differ.",
)


_KEEP = (
    "Next time keep the checkpoint before the learner's (save_total_limit=2), or its optimizer.pt, "
    "next to it: the probe finds them, and tests whether the sampler's weights are old."
)
"""For a learner without earlier weights next to it."""
_UNKNOWN = Identity("unknown", "The cause is unknown", _NEXT)


class Unexplained(Cause):
    """Reported instead of a guess."""

    id = _UNKNOWN.id
    title = _UNKNOWN.title
    remedies = _UNKNOWN.remedies
    peels = False

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """There is nothing to test."""
        return None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """There is nothing to test."""
        return None

    def remainder(self, experiments: Experiments, variant: Variant) -> ExperimentResult | None:
        """What was excluded, for a gap above rounding."""
        if not experiments.exceeds_rounding(variant) or experiments.case.differing:
            return None
        excluded = sorted(experiments.excluded.items(), key=lambda pair: pair[1])
        tried = f"; {len(excluded)} what-if edits were tried" if excluded else ""
        details = tuple(
            f"{name.replace('_', ' ')}: leaves {min(left, 1.0):.0%} of the gap"
            for name, left in excluded[:_SHOWN]
        )
        same = experiments.case.differing == ()
        what = "the tensors of both sides are equal by checksum" if same else _NO_CHECKSUMS
        place = located_once(experiments, variant)
        known = facts(variant.tokens, experiments.noise)
        return ExperimentResult(
            summary=(
                f"k3 is {variant.gap:.2g} nats per token, which exceeds rounding, and {what}{tried}"
            ),
            confidence="possible",
            details=(*_place_details(place), *known, *details),
            identity=_with_place(_SAME_FILES if same else _unknown(experiments), place),
            figures=_figures(place),
        )


def _unknown(experiments: Experiments) -> Identity:
    """The finding; it says which files to keep if there were no earlier weights to compare with."""
    if given_checkpoints(experiments) or experiments.found.neighbors.all:
        return _UNKNOWN
    sync, *others = _NEXT
    return Identity(_UNKNOWN.id, _UNKNOWN.title, (sync, _KEEP, *others))


def _with_place(identity: Identity, place: Location) -> Identity:
    """The name of the finding with the place at which the engines differ, if it is known."""
    if not place.place:
        return identity
    title = f"{identity.title}; if the model differs, most likely in {place.words}"
    remedy = (
        f"Feed the same token ids, one prompt with its response, to both engines. If they agree, "
        f"one of them reads other prompts. Otherwise compare the inputs and outputs of "
        f"{place.words}: the first of them that differs shows the faulty module."
    )
    if identity.id != _UNKNOWN.id:
        return Identity(identity.id, title, (remedy, *identity.remedies))
    sync, *others = identity.remedies
    return Identity(identity.id, title, (sync, remedy, *others))


def _place_details(place: Location) -> tuple[str, ...]:
    """What the comparison of places found."""
    if place.reason:
        return (f"the places of the model were not examined: {place.reason}",)
    if place.at_logits:
        return (_AT_LOGITS,)
    if not place.place:
        return (_NO_PLACE,)
    predicted = ""
    if place.held_out >= _WORTH_SAYING:
        rest = max(place.rival_held_out, 0.0)
        predicted = (
            f"; in prompts to which nothing was fitted, it predicts {place.held_out:.0%} of what "
            f"the tokens' own probabilities do not, the next best place {rest:.0%}"
        )
    return (
        f"a change in {place.words} fits the differences {place.margin:.0f} nats better than one "
        f"anywhere else (next best: {place.rival}){predicted}",
        _NOT_VERIFIED,
    )


def _figures(place: Location) -> dict[str, float]:
    if not place.place:
        return {}
    return {"place_margin": place.margin, "place_held_out": place.held_out}


_WORTH_SAYING = 0.1
"""Smallest predicted share that is stated: which tokens differ may show a place that does not show
by how much each differs."""
_AT_LOGITS = (
    "the differences point to the logits, not to a place before them: compare the output head "
    "and its norm, temperature, truncation and penalties"
)
_NOT_VERIFIED = (
    "no experiment verifies this place: prompts that one side reads with other tokens change the "
    "same log-probabilities as a change of attention does"
)
_NO_PLACE = "no place of the model fits the differences clearly better than all others"
_NO_CHECKSUMS = "no checksums or tensors of the sampler are known"
_SAME_FILES = Identity(
    "computed-differently",
    "Same files, computed differently",
    (
        "The weights are equal, so a sync does not help. Compare the engines' settings with the "
        "excluded ones in the list, beginning with those that leave the least of the gap.",
    ),
)
