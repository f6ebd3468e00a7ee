"""One side reads unknown tokens before or after every prompt, such as a system prompt."""

from __future__ import annotations

from collections.abc import Iterable

from grpodoctor.probe.attribution.causes.tokens.prompt_search import (
    KEPT,
    OtherPrompts,
    PromptSearch,
    candidates_of,
    edit_of_all,
    token_in_words,
)
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.edit_gaps import EditGaps
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.results.token_text import texts_of

_MOST = 10
"""Tokens that are added."""
_LOWERS = 0.96
"""Largest share of the gap that may remain after one more token. A few of many unknown tokens
lower it little."""
_FEW, _FEW_LOWER = 4, 0.75
"""Tokens that must have lowered the gap to this share: the best of many lowers any a little."""

Added = tuple[int, ...]


class AddedTokens(PromptSearch):
    """Same cause as `PromptIds`, found by adding tokens to the prompts in the learner."""

    remedies = (
        "Compare the rendered prompts of both sides token by token: chat templates and servers add "
        "default system prompts, and generation prompts or opened thoughts at the end.",
        *PromptSearch.remedies,
    )
    strength = 0.012

    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """Add the token that lowers the gap most, as long as one lowers it."""
        is_first, added = _Search(experiments, variant).run()
        if not added:
            return None
        texts = texts_of(experiments.case.learner.model)
        tokens = ", ".join(token_in_words(token, texts) for token in added)
        where = "before" if is_first else "after"
        words = f"token{'s' if len(added) > 1 else ''} {tokens} {where} every prompt"
        return OtherPrompts(
            _edit(is_first, added), words, details=(words,), figures={"added": float(len(added))}
        )


class _Search:
    """Grows the added text by the token that lowers the gap most, on a few responses."""

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._gaps = experiments, EditGaps(experiments, variant)
        self._known: dict[tuple[bool, Added], float] = {}
        prompts = list(experiments.sampled_prompts.values())
        self._tokens = candidates_of(prompts, experiments.case.learner_facts.vocab_size)

    def run(self) -> tuple[bool, Added]:
        """Whether the tokens come first, and the tokens; none if they lower the gap too little.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """
        whole = self._gaps.gap(self._gaps.base_N)
        single = [(is_first, (token,)) for is_first in (True, False) for token in self._tokens]
        is_first, found = self._best(single)
        left = self._known[is_first, found]
        if left >= _LOWERS * whole:
            return is_first, ()
        while self._experiments.is_loud(left):
            if len(found) >= _FEW and left > _FEW_LOWER * whole:
                return is_first, ()
            _, better = self._best((is_first, each) for each in [found, *self._longer(found)])
            if self._known[is_first, better] >= _LOWERS * left:
                _, better = self._best((is_first, each) for each in self._replaced(found))
            if self._known[is_first, better] >= _LOWERS * left:
                break
            found, left = better, self._known[is_first, better]
        return is_first, found

    def _longer(self, found: Added) -> list[Added]:
        """With one more token at each place."""
        places = range(len(found) + 1) if len(found) < _MOST else ()
        return [(*found[:at], token, *found[at:]) for at in places for token in self._tokens]

    def _replaced(self, found: Added) -> list[Added]:
        """With another token in place of each, or without it."""
        fewer = [(*found[:at], *found[at + 1 :]) for at in range(len(found)) if len(found) > 1]
        others = [
            (*found[:at], token, *found[at + 1 :])
            for at in range(len(found))
            for token in self._tokens
        ]
        return [*others, *fewer]

    def _best(self, tried: Iterable[tuple[bool, Added]]) -> tuple[bool, Added]:
        """The text that leaves the smallest gap."""
        listed = list(dict.fromkeys(tried))
        missing = [each for each in listed if each not in self._known]
        gaps = self._gaps.of([_edit(*each) for each in missing])
        self._known |= dict(zip(missing, gaps, strict=True))
        return min(listed, key=self._known.__getitem__)


def _edit(is_first: bool, added: Added) -> Edit:
    place, text = (0, [*added, KEPT]) if is_first else (-1, [KEPT, *added])
    return edit_of_all([(place, text)])
