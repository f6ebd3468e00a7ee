"""A task that tracks the pass rate of each prompt and skips prompts that are too easy or hard."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.trainer.algorithms.filters.difficulty import DifficultyConfig, counted, is_outside
from grpodoctor.trainer.task import Problem, Rewards, Task, WrappedTask, correctness
from grpodoctor.vocabulary.values import Rate, Reading

_MAX_DRAWS = 20
"""Problems drawn per problem wanted, before skipped ones are used after all."""
_MAX_PROMPTS = 1_000_000
"""Prompts with counts; beyond it, the prompts not seen for longest are forgotten."""


@dataclass(frozen=True, slots=True)
class _PromptStats:
    """Counts of a prompt's responses."""

    passed: float = 0.0
    tried: float = 0.0
    outside: bool = False
    """Whether the pass rate was out of range at the last estimate."""
    retired: bool = False

    def add(self, correct: int, responses: int, settings: DifficultyConfig) -> _PromptStats:
        passed, tried = counted(self.passed, self.tried, correct, responses)
        retired = self.retired or 0 < settings.retire_at <= passed / tried
        return replace(self, passed=passed, tried=tried, retired=retired)


_UNKNOWN = _PromptStats()


def filtered_by_difficulty(task: Task, settings: DifficultyConfig) -> Task:
    """The task with prompts filtered by difficulty if the settings enable it, else unchanged."""
    return DifficultyFilteredTask(task, settings) if settings.filters else task


class DifficultyFilteredTask(WrappedTask):
    """A task whose problems are filtered by their pass rates in training."""

    def __init__(self, task: Task, settings: DifficultyConfig) -> None:
        super().__init__(task)
        self._settings, self._steps = settings, 0
        self._stats: dict[str, _PromptStats] = {}
        self._excluded = 0
        """Prompts with counts that are out of range or retired."""
        self._skipped = self._drawn = 0

    def begin_step(self) -> None:
        """Update which prompts are out of range, every `difficulty.every` steps."""
        self._task.begin_step()
        self._skipped = self._drawn = 0
        if self._settings.every and self._steps % self._settings.every == 0:
            self._stats = {
                key: replace(stats, outside=is_outside(stats.passed / stats.tried, self._settings))
                for key, stats in self._stats.items()
            }
            self._excluded = self._count()
        self._steps += 1

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next problems that are in range, filled up with skipped ones if there are too few."""
        kept: list[Problem] = []
        skipped: list[Problem] = []
        for _ in range(count * _MAX_DRAWS):
            problem = self._task.problems(rng, 1)[0]
            (kept if self._is_kept(problem, rng) else skipped).append(problem)
            if len(kept) == count:
                break
        # The sort is stable: the order of the stream, with retired prompts last.
        fillers = sorted(skipped, key=lambda problem: self._of(problem).retired)
        fillers = fillers[: count - len(kept)]
        self._drawn += len(kept) + len(skipped)
        self._skipped += len(skipped) - len(fillers)
        return kept + fillers

    def observe(self, problems: Sequence[Problem], rewards: Rewards) -> None:
        """Count the correct responses of each prompt.

        Raises:
            DataError: if the reward does not report which responses are correct.
        """
        counts: dict[str, tuple[int, int]] = {}
        for problem, right in zip(problems, correctness(rewards), strict=True):
            correct, responses = counts.get(_key(problem), (0, 0))
            counts[_key(problem)] = (correct + right, responses + 1)
        for key, (correct, responses) in counts.items():
            # Remove and insert again: the dict is ordered by when a prompt was last seen.
            stats = self._forget(key).add(correct, responses, self._settings)
            self._stats[key] = stats
            self._excluded += self._is_excluded(stats)
        while len(self._stats) > _MAX_PROMPTS:
            self._forget(next(iter(self._stats)))

    def readings(self) -> dict[str, Reading]:
        """Shares of skipped prompts, among those drawn in this step and among those with counts."""
        return {
            "prompts/skipped_rate": Rate(self._skipped, self._drawn),
            "prompts/outside_rate": Rate(self._excluded, len(self._stats)),
        }

    def state(self) -> dict[str, Any]:
        """The underlying task's state, the number of steps, and the counts of each prompt.

        The entries are not copied, because the state is read at every step; orjson writes them
        as they are.
        """
        return {"stream": self._task.state(), "steps": self._steps, "known": dict(self._stats)}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`; also accepts the state of a task without a filter."""
        self._task.restore(state.get("stream", state))
        self._steps = state.get("steps", 0)
        self._stats = {
            key: stats if isinstance(stats, _PromptStats) else _PromptStats(**stats)
            for key, stats in state.get("known", {}).items()
        }
        self._excluded = self._count()

    def _is_kept(self, problem: Problem, rng: random.Random) -> bool:
        stats = self._of(problem)
        if stats.retired or not self._is_excluded(stats):
            return not stats.retired
        return rng.random() < self._settings.explore

    def _is_excluded(self, stats: _PromptStats) -> bool:
        return stats.retired or (stats.outside and self._settings.every > 0)

    def _count(self) -> int:
        return sum(map(self._is_excluded, self._stats.values()))

    def _forget(self, key: str) -> _PromptStats:
        stats = self._stats.pop(key, _UNKNOWN)
        self._excluded -= self._is_excluded(stats)
        return stats

    def _of(self, problem: Problem) -> _PromptStats:
        return self._stats.get(_key(problem), _UNKNOWN)


def _key(problem: Problem) -> str:
    """A hash of the prompt: ids may repeat, and prompts may be long."""
    return hashlib.sha256(problem.prompt.encode()).hexdigest()[:16]
