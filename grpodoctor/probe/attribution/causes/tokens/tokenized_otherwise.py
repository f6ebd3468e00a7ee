"""One side reads some prompts with another token, or other tokens, at a place of each prompt's own.

Text that is decoded and tokenized again is split otherwise at any place, and in some prompts only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from grpodoctor.probe.attribution.causes.tokens.prompt_search import (
    KEPT,
    LOST,
    OtherPrompts,
    PromptSearch,
    candidates_of,
    edit_by_prompt,
    probes_of,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import regression, total_gap
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of

_MOST_PLACES = 48
"""Places of each prompt that are tried: of long prompts, half of them at either end."""
_CHOSEN = 6
"""Places of each prompt at which all tokens are tried."""
_MOST_TEXTS = 64
"""Other tokenizations of each prompt that are tried: the first ones of a long prompt."""
_CLOSES = 0.05
"""Largest share of the gap that may remain. Each prompt takes the best of many changes, so chance
lowers the gap, too, but no choice by chance closes that of responses to which it was not fitted."""
_CLIP = 3.0
"""Upper bound on |Δlogp| per token in what an effect has in common with the gap."""

Change = tuple[tuple[int, tuple[int, ...]], ...]
"""Places of one prompt with the tokens that it has there."""


class TokenizedOtherwise(PromptSearch):
    """Same cause as `PromptIds`, found for each prompt by itself."""

    least = 1 - _CLOSES
    strength = 0.008

    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """Choose the change of each prompt on one response; the others must agree, too."""
        search = _Search(experiments, variant)
        found = search.run()
        if not found:
            return None
        sizes = [_size(change) for change in found.values()]
        fewer, more = sum(size < 0 for size in sizes), sum(size > 0 for size in sizes)
        words = f"{len(found)} of {search.count} prompts tokenized otherwise"
        return OtherPrompts(
            edit_by_prompt(found),
            words,
            details=(f"{words} ({fewer} with fewer tokens, {more} with more)", *_shown(found)),
            figures={"prompts": float(search.count), "differing": float(len(found))},
        )


def _size(change: Change) -> int:
    """Tokens more than before."""
    return sum(len(tokens) - tokens.count(LOST) - 1 for _, tokens in change)


def _shown(found: Mapping[int, Change], most: int = 3) -> Iterator[str]:
    for number, change in list(found.items())[:most]:
        places = ", ".join(str(place + 1) for place, _ in change)
        yield f"prompt {number}: at place {places}"


class _Search:
    """Searches a change for each prompt; one pass tries a change of every prompt."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._variant = experiments, variant
        self._folder, at = experiments.one_of_each_prompt(variant)
        tokens = variant.tokens
        self._target, self._base = tokens.sampler_N[at], tokens.learner_N[at]
        prompt_N = tokens.prompt_B[tokens.rows_N[at]]
        self._at = {int(n): tokens.finite_N[at] & (prompt_N == n) for n in np.unique(prompt_N)}
        self.count = len(self._at)
        """Prompts that are examined."""
        self._before = {
            n: total_gap(self._base, self._target, at_N) for n, at_N in self._at.items()
        }
        loud = [
            n
            for n, at_N in self._at.items()
            if experiments.is_loud(self._before[n] / max(int(at_N.sum()), 1))
        ]
        prompts = experiments.sampled_prompts
        self._prompts = {n: prompts[n] for n in loud}
        self._best: dict[int, tuple[float, Change]] = {n: (self._before[n], ()) for n in loud}
        self._tokens = candidates_of(
            list(prompts.values()), experiments.case.learner_facts.vocab_size
        )

    def run(self) -> dict[int, Change]:
        """The change of each prompt; empty if they do not close the gap.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        self._try({n: self._of_texts(n) for n in self._prompts})
        if not self._is_closed():
            self._try({n: list(_fewer_or_twice(self._places(n))) for n in self._prompts})
        if not self._is_closed():
            self._try_tokens()
        if not self._is_closed():
            return {}
        return {n: change for n, (_, change) in self._best.items() if change}

    def _is_closed(self) -> bool:
        rest = sum(left for left, _ in self._best.values())
        return rest <= _CLOSES * sum(self._before[n] for n in self._best)

    def _places(self, number: int) -> list[int]:
        """Places of a prompt, those at its ends if it is long."""
        length, half = len(self._prompts[number]), _MOST_PLACES // 2
        if length <= _MOST_PLACES:
            return list(range(length))
        return [*range(half), *range(length - half, length)]

    def _of_texts(self, number: int) -> list[Change]:
        """Other tokenizations of the same text, if the tokens' texts are known."""
        texts = texts_of(self._experiments.case.learner.model)
        return list(retokenized(self._prompts[number], texts))[:_MOST_TEXTS] if texts else []

    def _try_tokens(self) -> None:
        """Replace one token, or two by one, where a few tokens have most in common with the gap."""
        probes = probes_of(self._tokens)
        tried = {
            n: [c for at in self._places(n) for c in _replaced(at, probes)] for n in self._prompts
        }
        merits = self._try(tried)
        chosen = {n: _best_places(tried[n], merits[n]) for n in self._prompts}
        self._try(
            {
                n: [(*_with(each, token),) for each in chosen[n] for token in self._tokens]
                for n in self._prompts
            }
        )

    def _try(self, tried: Mapping[int, Sequence[Change]]) -> dict[int, list[float]]:
        """Compute the changes, the n-th of all prompts at once; keep the best of each prompt.

        Returns:
            what each has in common with its prompt's gap.
        """
        merits: dict[int, list[float]] = {n: [] for n in tried}
        rounds = max(map(len, tried.values()), default=0)
        sets = [{n: each[k] for n, each in tried.items() if k < len(each)} for k in range(rounds)]
        edits = [(*self._variant.setup.edits, edit_by_prompt(each)) for each in sets]
        scores = self._experiments.score_edits(self._variant.setup, edits, self._folder)
        unfit_N = np.full(self._base.size, np.nan)
        for changes, learner_N in zip(sets, scores, strict=True):
            own_N = unfit_N if learner_N is None else learner_N[: unfit_N.size]
            for number, change in changes.items():
                at_N = self._at[number]
                missing_N, moved_N = (
                    each[at_N] - self._base[at_N] for each in (self._target, own_N)
                )
                merits[number].append(regression(missing_N, moved_N, _CLIP)[1])
                left = total_gap(own_N, self._target, at_N)
                if left < self._best[number][0]:
                    self._best[number] = left, change
        return merits


def _fewer_or_twice(places: Sequence[int]) -> Iterator[Change]:
    """Without one token or two, or with one twice."""
    for place in places:
        yield ((place, (LOST,)),)
        yield ((place, (KEPT, KEPT)),)
        yield (place, (LOST,)), (place + 1, (LOST,))


def _replaced(place: int, tokens: Sequence[int]) -> Iterator[Change]:
    """Other tokens in place of one token, or of two."""
    for token in tokens:
        yield ((place, (token,)),)
        yield (place, (token,)), (place + 1, (LOST,))


def _with(change: Change, token: int) -> Change:
    (place, _), *rest = change
    return (place, (token,)), *rest


def _best_places(tried: Sequence[Change], merits: Sequence[float]) -> list[Change]:
    """Changes at the places that have most in common with the gap, one for each place."""
    best: dict[tuple[int, int], tuple[float, Change]] = {}
    for change, merit in zip(tried, merits, strict=True):
        key = change[0][0], len(change)
        if merit > best.get(key, (-1.0, change))[0]:
            best[key] = merit, change
    return [change for _, change in sorted(best.values(), key=lambda pair: -pair[0])[:_CHOSEN]]


def retokenized(prompt: Sequence[int], texts: Mapping[int, str]) -> Iterator[Change]:
    """Changes that keep the text: two tokens as one, one as two, two as another two."""
    by_text: dict[str, int] = {}
    for token, text in texts.items():
        by_text.setdefault(text, token)
    for place, token in enumerate(prompt):
        text = texts.get(token, "")
        for cut in range(1, len(text)):
            parts = by_text.get(text[:cut]), by_text.get(text[cut:])
            if parts[0] is not None and parts[1] is not None:
                yield ((place, (parts[0], parts[1])),)
        following = texts.get(prompt[place + 1], "") if place + 1 < len(prompt) else ""
        if not following or not text:
            continue
        whole = text + following
        merged = by_text.get(whole)
        if merged is not None:
            yield (place, (merged,)), (place + 1, (LOST,))
        for cut in range(1, len(whole)):
            parts = by_text.get(whole[:cut]), by_text.get(whole[cut:])
            if cut != len(text) and parts[0] is not None and parts[1] is not None:
                yield (place, (parts[0],)), (place + 1, (parts[1],))
