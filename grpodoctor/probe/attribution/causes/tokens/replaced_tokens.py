"""The sampler reads other tokens at some places of every prompt, such as another date."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, permutations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.hidden_prompt import HiddenPrompt
from grpodoctor.probe.attribution.causes.tokens.prompt_ids import PromptIds
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps
from grpodoctor.probe.attribution.search.own_scores import differ, own_scores
from grpodoctor.probe.attribution.tokens import Floats
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of

EDIT = "prompt_tokens"
LOST, KEPT = -1, -2
"""In place of a token in the edit: the prompt has none at this place, or its own one."""
_MOST_PLACES, _MOST_LAST = 64, 16
"""Places from the start of the prompts, and from their end, that are tried."""
_MOST_TOKENS = 256
"""Tokens that are tried at a place: a small vocabulary, or those that prompts often have."""
_PROBES = 4
"""Tokens with which the places are found."""
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
_CLIP = 3.0
"""Upper bound on |Δlogp| per token in what an effect has in common with the gap."""

Replaced = tuple[tuple[int, int], ...]
"""Places and tokens, in order."""


class ReplacedTokens(Cause):
    """Same cause as `PromptIds`, found by replacing tokens of the prompts in the learner."""

    id = PromptIds.id
    title = PromptIds.title
    remedies = (
        "Compare the rendered prompts of both sides token by token at the named places: chat "
        "templates write dates, names of tools and default system prompts.",
        *HiddenPrompt.remedies,
    )
    least = 0.5
    is_surrogate = True
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A gap that no cheaper experiment explains, and a learner that can read other tokens."""
        return Hypothesis(0.01) if may_be_replaced(experiments, variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Find the places whose tokens matter most, and the tokens that explain the gap there."""
        if scores_otherwise(experiments, variant):
            return None
        found = _Search(experiments, variant).run()
        if not found:
            return None
        after = experiments.vary(variant, edits=(*variant.setup.edits, replaced_by_edit(found)))
        words = _in_words(found, texts_of(experiments.case.learner.model))
        return ExperimentResult(
            summary=(
                f"{reads_in_words(variant)} with {words} in every prompt, "
                f"k3 falls from {variant.gap:.2g} to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=(words,),
            figures={"replaced": float(len(found))},
        )


def may_be_replaced(experiments: Experiments, variant: Variant) -> bool:
    """Whether there is a gap above rounding, and a learner that can read other tokens."""
    setup = variant.setup
    other = setup.behind or setup.own_prompts or setup.rescored or setup.shift or setup.replay
    if other or not setup.learner.kind.can_alter:
        return False
    return experiments.exceeds_rounding(variant)


def scores_otherwise(experiments: Experiments, variant: Variant) -> bool:
    """Whether the sampler differs from the learner after the reported prompts, too.

    If the learner is the side that deviates, it has no other scores.
    """
    if variant.setup.swapped:
        return False
    own_N = own_scores(experiments, variant)
    return own_N is not None and differ(experiments, variant, own_N, variant.tokens.learner_N)


def replaced_by_edit(replaced: Iterable[tuple[int, int | list[int]]]) -> Edit:
    """The edit with these tokens, or lists of tokens, at these places of every prompt."""
    return EDIT, json.dumps([list(pair) for pair in replaced])


def reads_in_words(variant: Variant) -> str:
    """Which side reads other prompts than both sides report, as the begin of a sentence."""
    if variant.setup.swapped:
        return "the learner reads other prompt ids than the sampler reports:"
    return "the sampler reports the learner's prompt ids, but"


def _in_words(replaced: Replaced, texts: Mapping[int, str]) -> str:
    parts = []
    for place, token in replaced:
        parts.append(f"token {token_in_words(token, texts)} at {place_in_words(place)}")
    return ", ".join(parts)


def token_in_words(token: int, texts: Mapping[int, str]) -> str:
    """A token's id, with its text if it is known."""
    return f"{token} ({texts[token]!r})" if token in texts else str(token)


def place_in_words(place: int) -> str:
    """A place in the prompts, for a sentence; negative ones are counted from the end."""
    return f"place {place + 1}" if place >= 0 else f"place {-place} from the end"


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
            if not self._experiments.is_loud(self._gaps[found]):
                break
            taken = {place for place, _ in found}
            near = {place + far for place in taken for far in range(-_NEAR, _NEAR + 1)}
            places = sorted((near & set(self._places)) - taken)
        return found

    def _best_places(self) -> list[int]:
        """The places whose replacement has most in common with the gap."""
        probes = self._tokens[:: max(1, len(self._tokens) // _PROBES)][:_PROBES]
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
        scores = self._edits.scores([replaced_by_edit(each) for each in missing])
        for each, learner_N in zip(missing, scores, strict=True):
            self._gaps[each] = self._edits.gap(learner_N)
            self._common[each] = 0.0 if learner_N is None else self._shared(learner_N)

    def _shared(self, learner_N: Floats) -> float:
        """Share of the gap's variance that an effect explains, whatever its sign and size."""
        edits = self._edits
        missing_N, moved_N = edits.target_N - edits.base_N, learner_N - edits.base_N
        at = edits.counted_N & np.isfinite(missing_N) & np.isfinite(moved_N)
        missing, moved = (np.clip(each[at], -_CLIP, _CLIP) for each in (missing_N, moved_N))
        whole = float(missing @ missing) * float(moved @ moved)
        return float(missing @ moved) ** 2 / whole if whole else 0.0


def places_of(lengths: Sequence[int]) -> list[int]:
    """Places from the start, and from the end if the prompts have different lengths."""
    shortest = min(lengths, default=0)
    first = list(range(min(shortest, _MOST_PLACES)))
    is_same = shortest == max(lengths, default=0)
    return first if is_same else [*first, *range(-min(shortest, _MOST_LAST), 0)]


def candidates_of(prompts: Sequence[Sequence[int]], vocabulary: int) -> list[int]:
    """The tokens to try: all of a small vocabulary, otherwise the most frequent of the prompts."""
    if 0 < vocabulary <= _MOST_TOKENS:
        return list(range(vocabulary))
    counts = Counter(token for prompt in prompts for token in prompt)
    return [token for token, _ in counts.most_common(_MOST_TOKENS)]
