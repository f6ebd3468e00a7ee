"""One side reads some prompts with another token, or other tokens, at a place of each prompt's own.

Text that is decoded and tokenized again is split otherwise at any place, and in some prompts only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.prompt_ids import PromptIds
from grpodoctor.probe.attribution.causes.tokens.replaced_tokens import (
    EDIT,
    KEPT,
    LOST,
    candidates_of,
    may_be_replaced,
    reads_in_words,
    scores_otherwise,
)
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, difference_gap
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of

_PROBES = 4
"""Tokens with which the places are found."""
_MOST_PLACES = 48
"""Places of each prompt that are tried: of long prompts, half of them at either end."""
_CHOSEN = 6
"""Places of each prompt at which all tokens are tried."""
_MOST_TEXTS = 64
"""Other tokenizations of each prompt that are tried."""
_CLOSES = 0.05
"""Largest share of the gap that may remain. Each prompt takes the best of many changes, so chance
lowers the gap, too, but no choice by chance closes that of responses to which it was not fitted."""
_CLIP = 3.0

Change = tuple[tuple[int, tuple[int, ...]], ...]
"""Places of one prompt with the tokens that it has there."""


class TokenizedOtherwise(Cause):
    """Same cause as `PromptIds`, found for each prompt by itself."""

    id = PromptIds.id
    title = PromptIds.title
    remedies = PromptIds.remedies
    least = 1 - _CLOSES
    is_surrogate = True
    is_symmetric = True

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """The same, after the searches for changes that all prompts have at the same places."""
        return Hypothesis(0.008) if may_be_replaced(experiments, variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Choose the change of each prompt on one response, and test it on the others."""
        if scores_otherwise(experiments, variant):
            return None
        search = _Search(experiments, variant)
        found = search.run()
        if not found:
            return None
        after = experiments.vary(variant, edits=(*variant.setup.edits, _edit(found)))
        sizes = {number: _size(change) for number, change in found.items()}
        fewer, more = (sum(sign * size < 0 for size in sizes.values()) for sign in (1, -1))
        words = f"{len(found)} of {search.count} prompts tokenized otherwise"
        how = f"{fewer} with fewer tokens, {more} with more"
        return ExperimentResult(
            summary=(
                f"{reads_in_words(variant)} with {words}, k3 falls from {variant.gap:.2g} to "
                f"{after.gap:.2g} nats per token"
            ),
            after=after,
            details=(f"{words} ({how})", *_shown(found)),
            figures={"prompts": float(search.count), "differing": float(len(found))},
        )


def _size(change: Change) -> int:
    """Tokens more than before."""
    return sum(len(tuple(t for t in tokens if t != LOST)) - 1 for _, tokens in change)


def _shown(found: Mapping[int, Change], most: int = 3) -> Iterator[str]:
    for number, change in list(found.items())[:most]:
        places = ", ".join(str(place + 1) for place, _ in change)
        yield f"prompt {number}: at place {places}"


def _edit(found: Mapping[int, Change]) -> Edit:
    listed = [
        [str(number), [[place, list(tokens)] for place, tokens in change]]
        for number, change in found.items()
    ]
    return EDIT, json.dumps(listed)


class _Search:
    """Searches a change for each prompt; one pass tries a change of every prompt."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._variant = experiments, variant
        self._folder, at = experiments.one_of_each_prompt(variant)
        tokens = variant.tokens
        self._target, self._base = tokens.sampler_N[at], tokens.learner_N[at]
        counted_N = tokens.counted_N[at] & np.isfinite(self._target)
        prompt_N = tokens.prompt_B[tokens.rows_N[at]]
        self._at = {int(n): counted_N & (prompt_N == n) for n in np.unique(prompt_N)}
        self.count = len(self._at)
        """Prompts that are examined."""
        self._before = {n: self._sum(self._base, at_N) for n, at_N in self._at.items()}
        loud = [n for n, at_N in self._at.items() if self._is_loud(n, self._before[n], at_N)]
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

    def _is_loud(self, number: int, total: float, at_N: Floats) -> bool:
        return self._experiments.is_loud(total / max(int(at_N.sum()), 1))

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
        probes = self._tokens[:: max(1, len(self._tokens) // _PROBES)][:_PROBES]
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
        edits = [(*self._variant.setup.edits, _edit(each)) for each in sets]
        scores = self._experiments.score_edits(self._variant.setup, edits, self._folder)
        for changes, learner_N in zip(sets, scores, strict=True):
            for number, change in changes.items():
                at_N = self._at[number]
                merits[number].append(0.0 if learner_N is None else self._shared(learner_N, at_N))
                left = np.inf if learner_N is None else self._sum(learner_N, at_N)
                if left < self._best[number][0]:
                    self._best[number] = left, change
        return merits

    def _sum(self, learner_N: Floats, at_N: Floats) -> float:
        """The gap of a prompt's tokens, times their number."""
        known_N = at_N & np.isfinite(learner_N[: at_N.size])
        if not at_N.any():
            return 0.0
        if known_N.sum() < at_N.sum():
            return float("inf")
        return difference_gap(learner_N[: at_N.size][at_N], self._target[at_N]) * int(at_N.sum())

    def _shared(self, learner_N: Floats, at_N: Floats) -> float:
        """Share of a prompt's gap that an effect explains, whatever its sign and size."""
        moved_N = learner_N[: at_N.size] - self._base
        at = at_N & np.isfinite(moved_N) & np.isfinite(self._base)
        missing, moved = (
            np.clip(each[at], -_CLIP, _CLIP) for each in (self._target - self._base, moved_N)
        )
        whole = float(missing @ missing) * float(moved @ moved)
        return float(missing @ moved) ** 2 / whole if whole else 0.0


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
