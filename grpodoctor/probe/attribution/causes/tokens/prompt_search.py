"""What searches of other prompts have in common: one side reads prompts that it does not report."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.prompt_ids import PromptIds
from grpodoctor.probe.attribution.edits import Edit
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.own_scores import differ, own_scores
from grpodoctor.probe.attribution.variant import Variant

LOST, KEPT = -1, -2
"""In place of a token in the edit: the prompt has none at this place, or its own one."""
_EDIT = "prompt_tokens"
_MOST_PLACES, _MOST_LAST = 64, 16
"""Places from the start of the prompts, and from their end, that are tried."""
_MOST_TOKENS = 256
"""Tokens that are tried at a place: a small vocabulary, or those that prompts often have."""
_PROBES = 4
"""Tokens with which the places are found."""

At = tuple[int, int | Sequence[int]]
"""A place, and the token or tokens that a prompt has there."""
Whole = tuple[str, Any]
"""What is kept of a whole prompt, such as its `last` tokens, or what stands in its place."""


@dataclass(frozen=True)
class OtherPrompts:
    """The change of the prompts that a search found."""

    edit: Edit
    words: str
    """The change in a sentence, after "with"."""
    details: tuple[str, ...]
    figures: Mapping[str, float]


class PromptSearch(Cause):
    """Same cause as `PromptIds`, found by changing the prompts that the learner reads."""

    id = PromptIds.id
    title = PromptIds.title
    remedies: ClassVar[tuple[str, ...]] = PromptIds.remedies
    least = 0.5
    is_surrogate = True
    is_symmetric = True
    needs_steady = True
    strength: ClassVar[float]
    """Strength of the hypothesis. All searches have the same reason, so this is their order: those
    that take few passes come first."""

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A gap above rounding, and a learner that can read other prompts."""
        setup = variant.setup
        other = setup.behind or setup.own_prompts or setup.rescored or setup.shift or setup.replay
        if other or not setup.learner.kind.can_alter:
            return None
        return Hypothesis(self.strength) if experiments.exceeds_rounding(variant) else None

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Search a change of the prompts, unless the sides differ after the reported ones, too."""
        if _scores_otherwise(experiments, variant):
            return None
        found = self.search(experiments, variant)
        if found is None:
            return None
        after = experiments.vary(variant, edits=(*variant.setup.edits, found.edit))
        return ExperimentResult(
            summary=(
                f"{_reads_in_words(variant)} with {found.words}, k3 falls from {variant.gap:.2g} "
                f"to {after.gap:.2g} nats per token"
            ),
            after=after,
            details=found.details,
            figures=found.figures,
        )

    @abstractmethod
    def search(self, experiments: Experiments, variant: Variant) -> OtherPrompts | None:
        """The change of the prompts that leaves the smallest gap; None if none lowers it enough.

        Raises:
            EngineError: if the learner fails.
            BudgetSpentError: if the time budget is used up.
        """


def _scores_otherwise(experiments: Experiments, variant: Variant) -> bool:
    """Whether the sampler differs from the learner after the reported prompts, too.

    If the learner is the side that deviates, it has no other scores.
    """
    if variant.setup.swapped:
        return False
    own_N = own_scores(experiments, variant)
    return own_N is not None and differ(experiments, variant, own_N, variant.tokens.learner_N)


def _reads_in_words(variant: Variant) -> str:
    """Which side reads other prompts than both sides report, as the beginning of a sentence."""
    if variant.setup.swapped:
        return "the learner reads other prompt ids than the sampler reports:"
    return "the sampler reports the learner's prompt ids, but"


def edit_of_all(changes: Iterable[At | Whole]) -> Edit:
    """The edit with these changes of every prompt."""
    return _EDIT, json.dumps([list(each) for each in changes])


def edit_by_prompt(changes: Mapping[int, Iterable[At | Whole]]) -> Edit:
    """The edit with changes of each prompt, by the prompt's number."""
    listed = [[str(number), [list(each) for each in own]] for number, own in changes.items()]
    return _EDIT, json.dumps(listed)


def token_in_words(token: int, texts: Mapping[int, str]) -> str:
    """A token's id, with its text if it is known."""
    return f"{token} ({texts[token]!r})" if token in texts else str(token)


def place_in_words(place: int) -> str:
    """A place in the prompts, for a sentence; negative ones are counted from the end."""
    return f"place {place + 1}" if place >= 0 else f"place {-place} from the end"


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


def probes_of(candidates: Sequence[int]) -> Sequence[int]:
    """A few of the tokens to try, with which the places are found."""
    return candidates[:: max(1, len(candidates) // _PROBES)][:_PROBES]
