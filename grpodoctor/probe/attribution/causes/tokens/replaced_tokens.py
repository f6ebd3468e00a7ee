"""The sampler reads other tokens at some places of every prompt, such as another date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, permutations

from grpodoctor.probe.attribution.causes.tokens.hidden_prompt import HiddenPrompt
from grpodoctor.probe.attribution.causes.tokens.prompt_search import (
    OtherPrompts,
    PromptSearch,
    candidates_of,
    edit_of_all,
    place_in_words,
    places_of,
    probes_of,
    token_in_words,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps, regression
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of

_CHOSEN = 4
"""Places at which all tokens are tried first."""
_NEAR = 2
"""Distance of further places: a text in the template is replaced as a whole."""
_MOST_REPLACED = 8
_SWEEPS = 3
_FEW = 4
"""Tokens whose orders are all tried."""
_LOWERS = 0.9
"""Largest share of the gap that may remain after one more token."""
_MOST_OPEN, _HALF = 800, 0.5
"""Passes after which a share of the gap must be closed."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token in what an effect has in common with the gap."""

Replaced = tuple[tuple[int, int], ...]
"""Places and tokens, in order."""


class ReplacedTokens(PromptSearch):
    """Same cause as `PromptIds`, found by replacing tokens of the prompts in the learner."""

    remedies = (
        "Compare the rendered prompts of both sides token by token at the named places: chat "
        "templates write dates, names of tools and default system prompts.",
        *HiddenPrompt.remedies,
    )
    strength = 0.01

    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """Find the places whose tokens matter most, and the tokens that explain the gap there."""
        found = _Search(experiments, variant).run()
        if not found:
            return None
        words = _in_words(found, texts_of(experiments.case.learner.model))
        return OtherPrompts(
            edit_of_all(found),
            words=f"{words} in every prompt",
            details=(words,),
            figures={"replaced": float(len(found))},
        )


def _in_words(replaced: Replaced, texts: Mapping[int, str]) -> str:
    parts = []
    for place, token in replaced:
        parts.append(f"token {token_in_words(token, texts)} at {place_in_words(place)}")
    return ", ".join(parts)


class _Search:
    """Searches tokens that every prompt has at the same places, on a few responses."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments = experiments
        self._edits = EditGaps(experiments, variant)
        self._gaps: dict[Replaced, float] = {(): self._edits.gap(self._edits.base_N)}
        self._common: dict[Replaced, float] = {}
        prompts = list(experiments.sampled_prompts.values())
        self._places = places_of([len(prompt) for prompt in prompts])
        self._tokens = candidates_of(prompts, experiments.case.learner_facts.vocab_size)

    def run(self) -> Replaced:
        """The places and tokens that leave the smallest gap; empty if none lowers it much.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        places = self._best_places()
        found: Replaced = ()
        while places and len(found) < _MOST_REPLACED:
            grown = self._grown(found, places)
            if self._gaps[grown] >= _LOWERS * self._gaps[found]:
                break
            found = self._revised(grown)
            if not self._experiments.is_loud(self._gaps[found]) or self._is_hopeless(found):
                break
            taken = {place for place, _ in found}
            near = {place + far for place in taken for far in range(-_NEAR, _NEAR + 1)}
            places = sorted((near & set(self._places)) - taken)
        return found

    def _is_hopeless(self, found: Replaced) -> bool:
        """Whether many passes left most of the gap: the best of many lowers any a little."""
        is_open = self._gaps[found] > _HALF * self._gaps[()]
        return is_open and len(self._gaps) > _MOST_OPEN

    def _best_places(self) -> list[int]:
        """The places whose replacement has most in common with the gap."""
        probes = probes_of(self._tokens)
        self._measure([((place, token),) for place in self._places for token in probes])
        merit = {
            place: max(self._common.get(((place, token),), 0.0) for token in probes)
            for place in self._places
        }
        return sorted(self._places, key=lambda place: -merit[place])[:_CHOSEN]

    def _grown(self, found: Replaced, places: Sequence[int]) -> Replaced:
        """With the best token at one more place."""
        sets = [
            tuple(sorted((*found, (place, token)))) for place in places for token in self._tokens
        ]
        self._measure(sets)
        return min(sets, key=lambda each: self._gaps[each])

    def _revised(self, found: Replaced) -> Replaced:
        """With each token chosen again next to the others, and with the tokens in other orders.

        The right tokens at the wrong places are a local minimum that no single change leaves.
        """
        for _ in range(_SWEEPS if len(found) > 1 else 0):
            before = self._gaps[found]
            orders = self._orders(found)
            self._measure(orders)
            found = min(found, *orders, key=lambda each: self._gaps[each])
            for place, _token in found:
                others = tuple(pair for pair in found if pair[0] != place)
                grown = self._grown(others, [place])
                found = min(found, grown, key=lambda each: self._gaps[each])
            if self._gaps[found] > _LOWERS * before or not self._experiments.is_loud(
                self._gaps[found]
            ):
                break
        return found

    @staticmethod
    def _orders(found: Replaced) -> list[Replaced]:
        """The same tokens in other orders: all of few, otherwise two exchanged."""
        places, tokens = zip(*found, strict=True)
        if len(found) <= _FEW:
            return [tuple(zip(places, order, strict=True)) for order in permutations(tokens)]
        exchanged = []
        for one, other in combinations(range(len(found)), 2):
            order = list(tokens)
            order[one], order[other] = order[other], order[one]
            exchanged.append(tuple(zip(places, order, strict=True)))
        return exchanged

    def _measure(self, sets: Iterable[Replaced]) -> None:
        missing = [each for each in dict.fromkeys(sets) if each not in self._gaps]
        scores = self._edits.scores([edit_of_all(each) for each in missing])
        for each, learner_N in zip(missing, scores, strict=True):
            self._gaps[each] = self._edits.gap(learner_N)
            self._common[each] = 0.0 if learner_N is None else self._shared(learner_N)

    def _shared(self, learner_N: Floats) -> float:
        """Share of the gap's variance that an effect explains, whatever its sign and size."""
        edits = self._edits
        missing_N, moved_N = edits.target_N - edits.base_N, learner_N - edits.base_N
        at_N = edits.counted_N
        _, explained = regression(missing_N[at_N], moved_N[at_N], _CLIP)
        return explained
