"""One side reads some prompts with another token, or other tokens, at a place of each prompt's own.

Text that is decoded and tokenized again is split otherwise at any place, and in some prompts only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from grpodoctor.probe.attribution.causes.tokens.each_prompt import CLOSES, EachPrompt
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
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of

_MOST_PLACES = 48
"""Places of each prompt that are tried: of long prompts, half of them at either end."""
_CHOSEN = 6
"""Places of each prompt at which all tokens are tried at once."""
_MOST_ROUNDS = 6
"""How often further places are tried."""
_SHOWS = 1 / 3
"""Share of the prompts that the first places must explain: if the cause is another one, no token
closes the gap of a prompt."""
_MOST_TEXTS = 64
"""Other tokenizations of each prompt that are tried: the first ones of a long prompt."""

Change = tuple[tuple[int, tuple[int, ...]], ...]
"""Places of one prompt with the tokens that it has there."""


class TokenizedOtherwise(PromptSearch):
    """Same cause as `PromptIds`, found for each prompt by itself."""

    least = 1 - CLOSES
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
        self._experiments = experiments
        self._each = EachPrompt[Change](experiments, variant, lambda change: change)
        self.count = len(self._each.at)
        """Prompts that are examined."""
        prompts = experiments.sampled_prompts
        self._prompts = {n: prompts[n] for n in self._each.loud()}
        self._tokens = candidates_of(
            list(prompts.values()), experiments.case.learner_facts.vocab_size
        )

    def run(self) -> dict[int, Change]:
        """The change of each prompt; empty if they do not close the gap.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        self._each.tried({n: self._of_texts(n) for n in self._prompts})
        if not self._is_closed():
            self._each.tried({n: list(_fewer_or_twice(self._places(n))) for n in self._prompts})
        if not self._is_closed():
            self._try_tokens()
        if not self._is_closed():
            return {}
        return self._each.best()

    def _is_closed(self) -> bool:
        return self._each.is_closed(self._prompts)

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
        """Replace one token, or two by one, first where a few tokens fit the gap best."""
        probes = probes_of(self._tokens)
        tried = {
            n: [c for at in self._places(n) for c in _replaced(at, probes)] for n in self._prompts
        }
        merits = self._each.tried(tried)
        ranked = {n: _ranked_places(tried[n], merits[n]) for n in self._prompts}
        remaining = list(self._prompts)
        for number in range(_MOST_ROUNDS):
            places = slice(number * _CHOSEN, (number + 1) * _CHOSEN)
            self._each.tried({n: self._with_each_token(ranked[n][places]) for n in remaining})
            remaining = self._each.still_loud(remaining)
            if not remaining or len(remaining) > (1 - _SHOWS) * len(self._prompts):
                return

    def _with_each_token(self, places: Sequence[Change]) -> list[Change]:
        return [_with(each, token) for each in places for token in self._tokens]


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


def _ranked_places(tried: Sequence[Change], merits: Sequence[float]) -> list[Change]:
    """One change for each place, those that have most in common with the gap first."""
    best: dict[tuple[int, int], tuple[float, Change]] = {}
    for change, merit in zip(tried, merits, strict=True):
        key = change[0][0], len(change)
        if merit > best.get(key, (-1.0, change))[0]:
            best[key] = merit, change
    return [change for _, change in sorted(best.values(), key=lambda pair: -pair[0])]


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
