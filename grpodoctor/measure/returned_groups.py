"""Whether the responses to a prompt are those of an earlier step.

A policy that samples on its own hardly draws the same set of responses to a prompt twice. A cache
with the prompt as its key, or a buffer that is never emptied, returns them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

RETURNED, RETURNED_BY_CHANCE = "groups/returned_rate", "groups/returned_by_chance"
RETURNED_GROUPS = frozenset({RETURNED, RETURNED_BY_CHANCE})
"""The readings of a step that depend on earlier steps."""
MAX_PROMPTS = 10_000
"""Prompts that are remembered: those with the smallest hashes."""
MAX_VISITS = 64
"""Latest sets of responses that are remembered of each prompt."""

_HASH_BYTES = 8


class _Visit(NamedTuple):
    """A set of responses to a prompt, of which only a hash is kept."""

    step: int
    """The latest step that had it."""
    chance: float
    """What `most_likely` says of it, which takes too long to compute at every step."""


@dataclass(slots=True)
class ReturnedGroups:
    """Compares the groups of each step with those of earlier steps."""

    _visits: dict[int, dict[bytes, _Visit]] = field(default_factory=dict)
    """By the prompt's hash, and by that of the sorted responses."""

    def readings(self, step: int, columns: Mapping[str, NDArray[np.generic]]) -> dict[str, Reading]:
        """The readings of the next step; none if no prompt has been seen before.

        Args:
            step: the step; steps come in ascending order.
            columns: `group`, `prompt` and `text` of each response; 0 means unknown.
        """
        groups = _groups_of(columns)
        known = [(prompt, texts) for prompt, texts in groups if prompt in self._visits]
        sources = [self._visits[prompt].get(_hash_of(texts)) for prompt, texts in known]
        chances = [
            min(1.0, sum(visit.chance for visit in self._visits[prompt].values()))
            for prompt, _ in known
        ]
        for prompt, texts in groups:
            self._remember(prompt, texts, step)
        if not known:
            return {}
        steps = [source.step for source in sources if source is not None]
        returned = len(steps)
        if returned == len(groups) and len(set(steps)) == 1:
            # Several optimizer steps learn from one batch, by design.
            reason = NotApplicable("the whole batch is that of an earlier step")
            return {RETURNED: reason, RETURNED_BY_CHANCE: reason}
        return {RETURNED: Rate(returned, len(known)), RETURNED_BY_CHANCE: Mean.of(chances)}

    def _remember(self, prompt: int, texts: Sequence[int], step: int) -> None:
        visits, key = self._visits.setdefault(prompt, {}), _hash_of(texts)
        earlier = visits.pop(key, None)
        visits[key] = _Visit(step, earlier.chance if earlier else most_likely(texts))
        if len(visits) > MAX_VISITS:
            del visits[next(iter(visits))]
        if len(self._visits) > 2 * MAX_PROMPTS:
            self._visits = {key: self._visits[key] for key in sorted(self._visits)[:MAX_PROMPTS]}


def _hash_of(texts: Sequence[int]) -> bytes:
    from hashlib import blake2b  # loads OpenSSL, which a log without dumps does not need

    return blake2b(np.array(texts, np.uint64).tobytes(), digest_size=_HASH_BYTES).digest()


def _groups_of(columns: Mapping[str, NDArray[np.generic]]) -> list[tuple[int, tuple[int, ...]]]:
    """The prompt and the sorted responses of each group of two or more; both must be known."""
    order = np.lexsort((columns["text"], columns["group"]))
    group_B, prompt_B, text_B = (columns[name][order] for name in ("group", "prompt", "text"))
    borders = np.flatnonzero(group_B[1:] != group_B[:-1]) + 1
    parts = zip(*(np.split(each, borders) for each in (group_B, prompt_B, text_B)), strict=True)
    return [
        (int(prompts[0]), tuple(texts.tolist()))
        for groups, prompts, texts in parts
        if texts.size >= 2 and groups[0] and prompts.all() and texts.all()
    ]


def most_likely(texts: Sequence[int]) -> float:
    """The largest chance that independent draws of any policy give this set of responses.

    The multinomial probability of the counts at the policy that makes it largest, which draws each
    response as often as the set has it.
    """
    size = len(texts)
    counts = np.unique(np.array(texts, np.uint64), return_counts=True)[1].tolist()
    logarithm = math.lgamma(size + 1) + sum(
        count * math.log(count / size) - math.lgamma(count + 1) for count in counts
    )
    return min(1.0, math.exp(logarithm))
