"""One side reads two neighboring parts of every prompt in the other order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import product

from grpodoctor.probe.attribution.causes.tokens.prompt_search import (
    OtherPrompts,
    PromptSearch,
    edit_by_prompt,
    place_in_words,
)
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.severity import EXACT

_SIZES = (1, 2, 4)
"""Tokens of two parts of the same size that are exchanged first."""
_MOST_STARTS, _MOST_LAST = 48, 12
"""Places from the start of the prompts, and from their end, at which a part begins."""
_MOST_TOKENS = 200_000
"""Prompt tokens: each edit lists them."""
_STEPS = 24
_LOWERS = 0.95
"""Largest share of the gap that may remain after another change of the parts."""
_LEFT = 0.25
"""Largest share of the gap that may remain: the best of many exchanges lowers any a little."""


@dataclass(frozen=True, slots=True)
class Spans:
    """Two neighboring parts of a prompt."""

    start: int
    """Place of the first token; counted from the end if negative."""
    first: int
    """Tokens of the first part."""
    second: int

    def exchanged(self, ids: Sequence[int]) -> list[int]:
        """A prompt with the parts in the other order, as far as it has them."""
        start = self.start if self.start >= 0 else len(ids) + self.start
        middle, stop = start + self.first, start + self.first + self.second
        if start < 0:
            return list(ids)
        return [*ids[:start], *ids[middle:stop], *ids[start:middle], *ids[stop:]]

    def near(self) -> list[Spans]:
        """Parts of which each number is larger or smaller by one, or the same."""
        moved = (
            Spans(*(value + step for value, step in zip(astuple(self), steps, strict=True)))
            for steps in product((-1, 0, 1), repeat=3)
        )
        return [
            each
            for each in moved
            if each != self
            and min(each.first, each.second) > 0
            and (each.start < 0) == (self.start < 0)
        ]


class ExchangedSpans(PromptSearch):
    """Same cause as `PromptIds`, found by exchanging parts of the prompts in the learner."""

    remedies = (
        "Compare the rendered prompts of both sides token by token at the named place: keys of a "
        "tool's schema, several tools, or parts of a message are serialized in another order.",
        *PromptSearch.remedies,
    )
    strength = 0.014

    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """Exchange parts of the same size at each place, then move their borders."""
        prompts = experiments.sampled_prompts
        if sum(map(len, prompts.values())) > _MOST_TOKENS:
            return None
        found = _Search(experiments, variant).run()
        if found is None:
            return None
        words = (
            f"{found.first} and {found.second} tokens exchanged from {place_in_words(found.start)} "
            "on in every prompt"
        )
        sizes = {"first": float(found.first), "second": float(found.second)}
        return OtherPrompts(_edit(found, prompts.items()), words, details=(words,), figures=sizes)


class _Search:
    """Tries exchanges on a few responses."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._gaps = experiments, EditGaps(experiments, variant)
        self._prompts = experiments.sampled_prompts
        self._whole = self._gaps.gap(self._gaps.base_N)
        self._known: dict[Spans, float] = {}

    def run(self) -> Spans | None:
        """The parts whose exchange leaves the smallest gap; None if that is much.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        if self._whole <= EXACT:  # the few responses agree: the gap is in others
            return None
        best = self._best(self._first())
        for _ in range(_STEPS):
            if best is None or not self._experiments.is_loud(self._known[best]):
                break
            nearer = self._best(best.near())
            if nearer is None or self._known[nearer] >= _LOWERS * self._known[best]:
                break
            best = nearer
        return best if best is not None and self._known[best] <= _LEFT * self._whole else None

    def _first(self) -> list[Spans]:
        longest = max(map(len, self._prompts.values()), default=0)
        starts = range(min(longest, _MOST_STARTS))
        ends = range(-1, -_MOST_LAST - 1, -1)
        return [Spans(start, size, size) for start in (*starts, *ends) for size in _SIZES]

    def _best(self, tried: Iterable[Spans]) -> Spans | None:
        """The best of some exchanges that change a prompt; None if there are none."""
        prompts = self._prompts.values()
        changing = [
            each for each in tried if any(each.exchanged(ids) != list(ids) for ids in prompts)
        ]
        missing = [each for each in changing if each not in self._known]
        gaps = self._gaps.of([_edit(each, self._prompts.items()) for each in missing])
        self._known |= dict(zip(missing, gaps, strict=True))
        return min(changing, key=lambda each: self._known[each], default=None)


def _edit(spans: Spans, prompts: Iterable[tuple[int, Sequence[int]]]) -> Edit:
    return edit_by_prompt({number: [("all", spans.exchanged(ids))] for number, ids in prompts})
