"""The sampler reads other tokens at some places of the prompts, another text in each prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from grpodoctor.probe.attribution.causes.tokens.prompt_search import (
    OtherPrompts,
    PromptSearch,
    candidates_of,
    edit_by_prompt,
    edit_of_all,
    place_in_words,
    places_of,
    probes_of,
)
from grpodoctor.probe.attribution.causes.tokens.replaced_tokens import ReplacedTokens
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import total_gap
from grpodoctor.probe.attribution.tokens import Floats, Integers
from grpodoctor.probe.attribution.variant import Variant

_CHOSEN = 4
"""Places at which all tokens are tried first."""
_NEAR = 2
"""Distance of further places: a text in the template is replaced as a whole."""
_MOST_REPLACED = 6
_LOWERS = 0.6
"""Largest share of the gap that may remain after one more place. Each prompt takes the best of
many tokens, so chance lowers the gap, too."""
_CLOSES = 0.05
"""Largest share of the gap that may remain in the end, which no choice by chance leaves."""

Replaced = dict[int, dict[int, int]]
"""Tokens by place, for each prompt."""


class TokensByPrompt(PromptSearch):
    """Same cause as `ReplacedTokens`, where each prompt has another text at the same places."""

    remedies = (
        "Compare the rendered prompts of both sides token by token at the named places: chat "
        "templates and servers write times, request ids and user names, which differ by request.",
        *ReplacedTokens.remedies,
    )
    least = 1 - _CLOSES
    strength = 0.009

    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """Find the places on a few responses, and then the tokens of every prompt."""
        folder, at = experiments.sub_sample(variant)
        if folder is None:
            return None
        places = _Search(experiments, variant, folder, at).places()
        if not places:
            return None
        found = _Search(experiments, variant, *experiments.one_of_each_prompt(variant)).at(places)
        words = ", ".join(map(place_in_words, sorted(places)))
        return OtherPrompts(
            _edit(found),
            words=f"a token of its own in each prompt at {words}",
            details=(words,),
            figures={"replaced": float(len(places))},
        )


def _edit(found: Mapping[int, Mapping[int, int]]) -> Edit:
    return edit_by_prompt({prompt: sorted(own.items()) for prompt, own in found.items()})


def _with_token(found: Replaced, place: int, token: int) -> Edit:
    """One more token in each prompt; the first one is that of a text that all prompts have."""
    if not any(found.values()):
        return edit_of_all([(place, token)])
    return _edit({prompt: {**own, place: token} for prompt, own in found.items()})


class _Search:
    """Searches tokens for each prompt on some responses; one pass tries a token in all prompts."""

    def __init__(
        self, experiments: Experiments, variant: Variant, folder: Path | None, at: Integers
    ) -> None:
        self._experiments, self._variant, self._folder = experiments, variant, folder
        tokens = variant.tokens
        self._target, self._base = tokens.sampler_N[at], tokens.learner_N[at]
        self._counted = tokens.finite_N[at]
        self._prompt_N = tokens.prompt_B[tokens.rows_N[at]]
        self._prompts = np.unique(self._prompt_N).tolist()
        self._before = self._sums(self._base)
        prompts = list(experiments.sampled_prompts.values())
        self._places = places_of([len(prompt) for prompt in prompts])
        self._tokens = candidates_of(prompts, experiments.case.learner_facts.vocab_size)

    def places(self) -> list[int]:
        """The places at which tokens of each prompt's own close the gap; none if they do not.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        found: Replaced = {prompt: {} for prompt in self._prompts}
        sums, chosen = self._before, list[int]()
        places = self._best_places()
        while places and len(chosen) < _MOST_REPLACED:
            tried = {place: self._with_place(found, sums, place) for place in places}
            place = min(tried, key=lambda each: sum(tried[each][1].values()))
            if sum(tried[place][1].values()) > _LOWERS * sum(sums.values()):
                return []
            (found, sums), chosen = tried[place], [*chosen, place]
            if self._is_closed(sums):
                return chosen
            near = {one + far for one in chosen for far in range(-_NEAR, _NEAR + 1)}
            places = sorted((near & set(self._places)) - set(chosen))
        return []

    def at(self, places: Sequence[int]) -> Replaced:
        """The best tokens of each prompt at these places."""
        found: Replaced = {prompt: {} for prompt in self._prompts}
        sums = self._before
        for place in (*places, *(places if len(places) > 1 else ())):
            found, sums = self._with_place(found, sums, place)
        return found

    def _is_closed(self, sums: Mapping[int, float]) -> bool:
        total, count = sum(sums.values()), max(int(self._counted.sum()), 1)
        is_loud = self._experiments.is_loud(total / count)
        return not is_loud or total <= _CLOSES * sum(self._before.values())

    def _best_places(self) -> list[int]:
        """The places at which a few tokens already have most in common with each prompt's gap."""
        probes = probes_of(self._tokens)
        nothing: Replaced = {prompt: {} for prompt in self._prompts}
        merit = dict.fromkeys(self._places, 0.0)
        for place in self._places:
            shared = [self._shared(each) for each in self._scores(nothing, place, probes)]
            merit[place] = float(np.max(shared, axis=0).sum()) if shared else 0.0
        return sorted(self._places, key=lambda place: -merit[place])[:_CHOSEN]

    def _with_place(
        self, found: Replaced, sums: Mapping[int, float], place: int
    ) -> tuple[Replaced, dict[int, float]]:
        """With the best token of each prompt at one more place, where one lowers its gap."""
        best = {prompt: (total, found[prompt]) for prompt, total in sums.items()}
        scores = self._scores(found, place, self._tokens)
        for token, learner_N in zip(self._tokens, scores, strict=True):
            for prompt, total in self._sums(learner_N).items():
                if total < best[prompt][0]:
                    best[prompt] = total, {**found[prompt], place: token}
        return (
            {prompt: own for prompt, (_, own) in best.items()},
            {prompt: total for prompt, (total, _) in best.items()},
        )

    def _scores(self, found: Replaced, place: int, tokens: Iterable[int]) -> list[Floats]:
        """The learner's scores with each token at a place of every prompt."""
        setup = self._variant.setup
        edits = [(*setup.edits, _with_token(found, place, token)) for token in tokens]
        scores = self._experiments.score_edits(setup, edits, self._folder)
        nothing = np.full(self._target.size, np.nan)
        return [nothing if each is None else each[: nothing.size] for each in scores]

    def _sums(self, learner_N: Floats) -> dict[int, float]:
        """The gap of each prompt's tokens, times their number."""
        return {
            prompt: total_gap(learner_N, self._target, self._counted & (self._prompt_N == prompt))
            for prompt in self._prompts
        }

    def _shared(self, learner_N: Floats) -> Floats:
        """What an effect has in common with the gap of each prompt, as a share of all gaps."""
        missing_N, moved_N = self._target - self._base, learner_N - self._base
        at = self._counted & np.isfinite(missing_N) & np.isfinite(moved_N)
        shared = []
        for prompt in self._prompts:
            own = at & (self._prompt_N == prompt)
            missing, moved = (np.clip(each[own], -3, 3) for each in (missing_N, moved_N))
            size = float(moved @ moved)
            shared.append(float(missing @ moved) ** 2 / size if size else 0.0)
        return np.array(shared)
