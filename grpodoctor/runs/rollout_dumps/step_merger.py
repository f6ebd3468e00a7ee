"""Merging the measured responses of all shards into steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from grpodoctor.measure.response_table import (
    ResponseTable,
    correctness,
    join_tables,
    table_readings,
)
from grpodoctor.measure.returned_groups import ReturnedGroups
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_dumps.summarize import MAX_PROMPTS, ShardSummary, smallest
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import Reading

MAX_ROWS = 2_000_000
"""Responses of incomplete steps held in memory: half a gigabyte. Beyond it, the oldest steps are
returned."""


class PromptRate(NamedTuple):
    """How often a prompt was solved, over the whole dump."""

    prompt: str
    correct: int
    responses: int


@dataclass
class StepMerger:
    """Takes shard summaries in shard order, and returns the readings of steps."""

    shards: list[Shard]
    prompts: dict[int, str] = field(default_factory=dict)
    late: int = 0
    """Responses of steps that were already returned: the file's name has another step."""
    _rows: dict[int, list[ResponseTable]] = field(default_factory=lambda: defaultdict(list))
    _row_count: int = 0
    _returned: set[int] = field(default_factory=set)
    _solved: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Correct responses and all responses by the prompt's hash."""
    _earlier: ReturnedGroups = field(default_factory=ReturnedGroups)

    def add(self, summary: ShardSummary) -> None:
        """Add the summary of a shard."""
        table = summary.table
        self.prompts = smallest({**self.prompts, **summary.prompts})
        for step in np.unique(table.columns["step"]).tolist() if len(table) else ():
            rows = table.of_step(step)
            if step in self._returned:
                self.late += len(rows)
            else:
                self._rows[step].append(rows)
                self._row_count += len(rows)

    def complete_after(self, index: int) -> Iterator[tuple[int, dict[str, Reading]]]:
        """Yield the steps to which no later shard adds: shards with known steps are in order."""
        next_shard = self.shards[index + 1] if index + 1 < len(self.shards) else None
        border = next_shard.pieces[0].step if next_shard is not None else None
        for step in sorted(self._rows):
            is_full = self._row_count > MAX_ROWS and len(self._rows) > 1
            if is_full or (border is not None and step < border):
                yield step, self.pop(step)

    def rest(self) -> Iterator[tuple[int, dict[str, Reading]]]:
        """Yield all remaining steps, after the last shard."""
        for step in sorted(self._rows):
            yield step, self.pop(step)

    def steps(self) -> list[int]:
        """The steps that were not returned yet, ascending."""
        return sorted(self._rows)

    def pop(self, step: int) -> dict[str, Reading]:
        """Return the readings of a step."""
        table = join_tables(self._rows.pop(step))
        self._row_count -= len(table)
        self._returned.add(step)
        self._count_prompts(table)
        return table_readings(table) | self._earlier.readings(step, table.columns)

    def _count_prompts(self, table: ResponseTable) -> None:
        correct_B = correctness(table.columns)
        if correct_B is None:
            return
        known_B = ~np.isnan(correct_B) & (table.columns["prompt"] != 0)
        prompts, index = np.unique(table.columns["prompt"][known_B], return_inverse=True)
        correct = np.bincount(index, weights=correct_B[known_B], minlength=prompts.size)
        counts = np.bincount(index, minlength=prompts.size)
        for key, hits, count in zip(
            prompts.tolist(), correct.tolist(), counts.tolist(), strict=True
        ):
            before = self._solved.get(key, (0, 0))
            self._solved[key] = (before[0] + int(hits), before[1] + int(count))
        if len(self._solved) > 2 * MAX_PROMPTS:
            self._solved = {key: self._solved[key] for key in sorted(self._solved)[:MAX_PROMPTS]}

    def pass_rates(self) -> list[PromptRate]:
        """The pass rates of the kept prompts, lowest first."""
        rates = [
            PromptRate(self.prompts[key], *self._solved[key])
            for key in sorted(self._solved)
            if key in self.prompts
        ]
        return sorted(rates, key=lambda rate: (rate.correct / rate.responses, rate.prompt))
