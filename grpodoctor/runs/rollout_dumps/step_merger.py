"""From the rows of all shards to steps: each step once, when no shard is left that has some."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from grpodoctor.measure.response_table import Digest, correctness, digest_readings, join
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_dumps.summarize import MOST_PROMPTS, Summary, smallest
from grpodoctor.vocabulary.values import Reading

MOST_ROWS = 2_000_000
"""Rows held of steps that are not whole yet: half a gigabyte. Beyond, the oldest are given."""


class PromptRate(NamedTuple):
    """How often a prompt was solved, over the whole dump."""

    prompt: str
    correct: int
    responses: int


@dataclass
class StepMerger:
    """Takes summaries in the order of the plan, gives the readings of steps."""

    shards: list[Shard]
    prompts: dict[int, str] = field(default_factory=dict)
    late: int = 0
    """Responses of steps that had been given already: their file's name says another step."""
    _rows: dict[int, list[Digest]] = field(default_factory=lambda: defaultdict(list))
    _held: int = 0
    _given: set[int] = field(default_factory=set)
    _solved: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, summary: Summary) -> None:
        """Take the summary of a shard."""
        digest = summary.digest
        self.prompts = smallest({**self.prompts, **summary.prompts})
        for step in np.unique(digest.columns["step"]).tolist() if len(digest) else ():
            rows = digest.of_step(step)
            if step in self._given:
                self.late += len(rows)
            else:
                self._rows[step].append(rows)
                self._held += len(rows)

    def whole_after(self, index: int) -> Iterator[tuple[int, dict[str, Reading]]]:
        """The steps that no shard after this one adds to: known steps come in their order."""
        following = self.shards[index + 1] if index + 1 < len(self.shards) else None
        border = following.pieces[0].step if following is not None else None
        for step in sorted(self._rows):
            crowded = self._held > MOST_ROWS and len(self._rows) > 1
            if crowded or (border is not None and step < border):
                yield step, self.give(step)

    def rest(self) -> Iterator[tuple[int, dict[str, Reading]]]:
        """All that is held back: there is no more."""
        for step in sorted(self._rows):
            yield step, self.give(step)

    def steps(self) -> list[int]:
        """The steps that are held back, ascending."""
        return sorted(self._rows)

    def give(self, step: int) -> dict[str, Reading]:
        """The readings of a step that is whole."""
        digest = join(self._rows.pop(step))
        self._held -= len(digest)
        self._given.add(step)
        self._count_prompts(digest)
        return digest_readings(digest)

    def _count_prompts(self, digest: Digest) -> None:
        correct = correctness(digest.columns)
        if correct is None:
            return
        known = ~np.isnan(correct) & (digest.columns["prompt"] != 0)
        prompts, index = np.unique(digest.columns["prompt"][known], return_inverse=True)
        right = np.bincount(index, weights=correct[known], minlength=prompts.size)
        seen = np.bincount(index, minlength=prompts.size)
        for key, hits, count in zip(prompts.tolist(), right.tolist(), seen.tolist(), strict=True):
            before = self._solved.get(key, (0, 0))
            self._solved[key] = (before[0] + int(hits), before[1] + int(count))
        if len(self._solved) > 2 * MOST_PROMPTS:
            self._solved = {key: self._solved[key] for key in sorted(self._solved)[:MOST_PROMPTS]}

    def pass_rates(self) -> list[PromptRate]:
        """Of the prompts that are kept, the hardest first."""
        rates = [
            PromptRate(self.prompts[key], *self._solved[key])
            for key in sorted(self._solved)
            if key in self.prompts
        ]
        return sorted(rates, key=lambda each: (each.correct / each.responses, each.prompt))
