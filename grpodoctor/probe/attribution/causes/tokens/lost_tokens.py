"""The sampler reads the prompts without some tokens inside of them, such as a separator."""

from __future__ import annotations

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.prompt_ids import PromptIds
from grpodoctor.probe.attribution.causes.tokens.replaced_tokens import (
    may_be_replaced,
    place_in_words,
    places_of,
    replaced_by_edit,
    scores_otherwise,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps
from grpodoctor.probe.attribution.variant import Variant

_LOST = -1
"""In place of a token in the edit: the prompts have none at this place."""
_MOST = 8
_LOWERS = 0.9
"""Largest share of the gap that may remain after one more token."""

Places = tuple[int, ...]


class LostTokens(Cause):
    """Same cause as `PromptIds`, found by leaving tokens out of the prompts in the learner."""

    id = PromptIds.id
    title = PromptIds.title
    remedies = (
        "Compare the rendered prompts of both sides token by token at the named places: turns that "
        "are rendered one by one lose the separators between them, and stripped text its spaces.",
        *PromptIds.remedies,
    )
    least = 0.5
    is_surrogate = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A gap that no cheaper experiment explains, and a learner that can read other prompts."""
        return Hypothesis(0.015) if may_be_replaced(experiments, variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Leave out the token at each place, and further ones next to the best."""
        if scores_otherwise(experiments, variant):
            return None
        found = _lost(experiments, variant)
        if not found:
            return None
        edit = replaced_by_edit((place, _LOST) for place in found)
        after = experiments.vary(variant, edits=(*variant.setup.edits, edit))
        words = " and ".join(map(place_in_words, found))
        return ExperimentResult(
            summary=(
                f"the sampler reports the learner's prompt ids, but without the token at {words} "
                f"of every prompt, k3 falls from {variant.gap:.2g} to {after.gap:.2g} nats per "
                "token"
            ),
            after=after,
            details=(f"without the token at {words}",),
            figures={"lost": float(len(found))},
        )


def _lost(experiments: Experiments, variant: Variant) -> Places:
    """The places without whose tokens the smallest gap is left; empty if none lowers it much.

    Raises:
        EngineError: if the learner fails.
        BudgetSpentError: if the time budget is used up.
    """
    gaps = EditGaps(experiments, variant)
    places = places_of([len(prompt) for prompt in experiments.sampled_prompts.values()])
    found: Places = ()
    left = gaps.gap(gaps.base_N)
    tried: list[Places] = [(place,) for place in places]
    while tried and len(found) < _MOST:
        edits = [replaced_by_edit((place, _LOST) for place in each) for each in tried]
        known = dict(zip(tried, gaps.of(edits), strict=True))
        best = min(known, key=known.__getitem__)
        if known[best] >= _LOWERS * left:
            break
        found, left = best, known[best]
        if not experiments.is_loud(left):
            break
        near = {min(found) - 1, max(found) + 1} & set(places)
        tried = [tuple(sorted((*best, place))) for place in sorted(near)]
    return found
