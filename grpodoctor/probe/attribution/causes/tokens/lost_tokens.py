"""One side reads the prompts without some of their tokens, or reads one twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.prompt_ids import PromptIds
from grpodoctor.probe.attribution.causes.tokens.replaced_tokens import (
    KEPT,
    LOST,
    may_be_replaced,
    place_in_words,
    places_of,
    reads_in_words,
    replaced_by_edit,
    scores_otherwise,
)
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps
from grpodoctor.probe.attribution.variant import Variant

_MOST = 8
"""Tokens next to each other that may be lost."""
_ENDS = 8
"""Places at either end of the prompts at which several tokens are lost at first. Elsewhere a
token must be lost alone before its neighbors are tried."""
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
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A gap that no cheaper experiment explains, and a learner that can read other prompts."""
        return Hypothesis(0.015) if may_be_replaced(experiments, variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Leave out the token at each place, or several next to each other, or repeat one."""
        if scores_otherwise(experiments, variant):
            return None
        edit, words, count = _Search(experiments, variant).run()
        if edit is None:
            return None
        after = experiments.vary(variant, edits=(*variant.setup.edits, edit))
        return ExperimentResult(
            summary=(
                f"{reads_in_words(variant)} with every prompt {words}, k3 falls from "
                f"{variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=(words,),
            figures={"lost": float(count)},
        )


class _Search:
    """Tries lost and repeated tokens on a few responses."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._gaps = experiments, EditGaps(experiments, variant)
        self._whole = self._gaps.gap(self._gaps.base_N)
        prompts = experiments.sampled_prompts.values()
        self._places = places_of([len(prompt) for prompt in prompts])

    def run(self) -> tuple[Edit | None, str, int]:
        """The best edit, its words, and how many tokens are lost; no edit if none helps much.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        found, left = self._lost()
        twice = {place: _twice(place) for place in self._places}
        gaps = dict(zip(twice, self._gaps.of(list(twice.values())), strict=True))
        best = min(gaps, key=gaps.__getitem__, default=None)
        if best is not None and gaps[best] < min(left, _LOWERS * self._whole):
            return twice[best], f"with its token at {place_in_words(best)} twice", 0
        if not found:
            return None, "", 0
        words = " and ".join(map(place_in_words, found))
        return _without(found), f"without the token at {words}", len(found)

    def _lost(self) -> tuple[Places, float]:
        """The places without whose tokens the smallest gap is left; empty if none lowers it."""
        found, left = self._best([*((place,) for place in self._places), *self._spans()])
        while found and len(found) < _MOST and self._experiments.is_loud(left):
            near = {min(found) - 1, max(found) + 1} & set(self._places)
            longer = [tuple(sorted((*found, place))) for place in sorted(near)]
            best, gap = self._best(longer)
            if not best or gap >= _LOWERS * left:
                break
            found, left = best, gap
        return found, left

    def _best(self, tried: Sequence[Places]) -> tuple[Places, float]:
        gaps = dict(zip(tried, self._gaps.of([_without(each) for each in tried]), strict=True))
        best: Places = min(gaps, key=gaps.__getitem__, default=())
        return (best, gaps[best]) if best and gaps[best] < _LOWERS * self._whole else ((), math.inf)

    def _spans(self) -> Iterator[Places]:
        """Several tokens next to each other that begin or end near an end of the prompts.

        They may reach beyond the shortest prompt, which then loses fewer.
        """
        starts = [place for place in self._places if 0 <= place < _ENDS]
        for size in range(2, _MOST + 1):
            yield from (tuple(range(start, start + size)) for start in starts)
            ends = [place for place in self._places if -_ENDS <= place < 0]
            yield from (tuple(range(end - size + 1, end + 1)) for end in ends)


def _without(places: Places) -> Edit:
    return replaced_by_edit((place, LOST) for place in places)


def _twice(place: int) -> Edit:
    return replaced_by_edit([(place, [KEPT, KEPT])])
