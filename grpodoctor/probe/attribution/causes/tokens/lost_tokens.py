"""One side reads the prompts without some of their tokens, or reads one twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from grpodoctor.probe.attribution.causes.tokens.prompt_search import (
    KEPT,
    LOST,
    OtherPrompts,
    PromptSearch,
    edit_of_all,
    place_in_words,
    places_of,
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


class LostTokens(PromptSearch):
    """Same cause as `PromptIds`, found by leaving tokens out of the prompts in the learner."""

    remedies = (
        "Compare the rendered prompts of both sides token by token at the named places: turns that "
        "are rendered one by one lose the separators between them, and stripped text its spaces.",
        *PromptSearch.remedies,
    )
    strength = 0.015

    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """Leave out the token at each place, or several next to each other, or repeat one."""
        return _Search(experiments, variant).run()


class _Search:
    """Tries lost and repeated tokens on a few responses."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._gaps = experiments, EditGaps(experiments, variant)
        self._whole = self._gaps.gap(self._gaps.base_N)
        prompts = experiments.sampled_prompts.values()
        self._places = places_of([len(prompt) for prompt in prompts])

    def run(self) -> OtherPrompts | None:
        """The best change of the prompts; None if none helps much.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        found, left = self._lost()
        twice = {place: _twice(place) for place in self._places}
        gaps = dict(zip(twice, self._gaps.of(list(twice.values())), strict=True))
        best = min(gaps, key=gaps.__getitem__, default=None)
        if best is not None and gaps[best] < min(left, _LOWERS * self._whole):
            return _named(twice[best], f"with its token at {place_in_words(best)} twice", 0)
        return _named(_without(found), _without_in_words(found), len(found)) if found else None

    def _lost(self) -> tuple[Places, float]:
        """The places without whose tokens the smallest gap is left; empty if none lowers it."""
        found, left = self._best([*((place,) for place in self._places), *self._spans()])
        while found and len(found) < _MOST and self._experiments.is_loud(left):
            near = {found[0] - 1, found[-1] + 1} & set(self._places)
            near = {
                place for place in near if (place < 0) == (found[0] < 0)
            }  # 0 does not follow -1
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


def _named(edit: Edit, words: str, lost: int) -> OtherPrompts:
    return OtherPrompts(
        edit, f"every prompt {words}", details=(words,), figures={"lost": float(lost)}
    )


def _without_in_words(places: Places) -> str:
    """What every prompt lacks: one token, or several next to each other."""
    words = " to ".join(map(place_in_words, dict.fromkeys((places[0], places[-1]))))
    return f"without the token{'s' if len(places) > 1 else ''} at {words}"


def _without(places: Places) -> Edit:
    return edit_of_all((place, LOST) for place in places)


def _twice(place: int) -> Edit:
    return edit_of_all([(place, [KEPT, KEPT])])
