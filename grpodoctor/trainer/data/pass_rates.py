"""A task that knows how often its prompts are solved, and leaves out those not worth drawing."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpodoctor.trainer.algorithms.filters.difficulty import DifficultyConfig, counted, is_outside
from grpodoctor.trainer.data.tasks.base import Problem, Rewards, Task, verdicts
from grpodoctor.vocabulary.values import Rate, Reading

_PATIENCE = 20
"""Problems looked at for each that is wanted, before skipped ones are taken after all."""
_REMEMBERED = 1_000_000
"""Prompts with counts; of more the longest unseen are forgotten."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a prompt."""

    passed: float = 0.0
    tried: float = 0.0
    outside: bool = False
    """At the last estimate."""
    retired: bool = False

    def seen(self, correct: int, responses: int, settings: DifficultyConfig) -> _Known:
        passed, tried = counted(self.passed, self.tried, correct, responses)
        retired = self.retired or 0 < settings.retire_at <= passed / tried
        return replace(self, passed=passed, tried=tried, retired=retired)


_UNKNOWN = _Known()


def watched(task: Task, settings: DifficultyConfig) -> Task:
    """The task with its prompts filtered by difficulty, if the settings ask for it."""
    return PassRates(task, settings) if settings.filters else task


class PassRates(Task):
    """A task whose problems are filtered by their pass rates in training.

    Args:
        task: gives the problems and judges the answers.
        settings: which are left out.
    """

    def __init__(self, task: Task, settings: DifficultyConfig) -> None:
        self._task, self._settings = task, settings
        self.name, self.max_length_hint = task.name, task.max_length_hint
        self._steps = 0
        self._known: dict[str, _Known] = {}
        self._left_out = 0
        """Known prompts that are outside or retired."""
        self._skipped = self._looked_at = 0

    def begin_step(self) -> None:
        """Estimate anew which prompts are outside, if it is time."""
        self._task.begin_step()
        self._skipped = self._looked_at = 0
        if self._settings.every and self._steps % self._settings.every == 0:
            self._known = {
                key: replace(each, outside=is_outside(each.passed / each.tried, self._settings))
                for key, each in self._known.items()
            }
            self._left_out = self._count()
        self._steps += 1

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next problems that are worth drawing, and others where there are too few."""
        found: list[Problem] = []
        skipped: list[Problem] = []
        for _ in range(count * _PATIENCE):
            problem = self._task.problems(rng, 1)[0]
            (found if self._is_worth(problem, rng) else skipped).append(problem)
            if len(found) == count:
                break
        # Sorting is stable: in the order of the stream, those that are retired last.
        fillers = sorted(skipped, key=lambda each: self._of(each).retired)[: count - len(found)]
        self._looked_at += len(found) + len(skipped)
        self._skipped += len(skipped) - len(fillers)
        return found + fillers

    def observe(self, problems: Sequence[Problem], rewards: Rewards) -> None:
        """Count which responses were right.

        Raises:
            DataError: if nobody can tell.
        """
        counts: dict[str, tuple[int, int]] = {}
        for problem, right in zip(problems, verdicts(rewards), strict=True):
            correct, responses = counts.get(_key(problem), (0, 0))
            counts[_key(problem)] = (correct + right, responses + 1)
        for key, (correct, responses) in counts.items():
            before = self._forget(key)  # and put in anew, so that the longest unseen come first
            after = before.seen(correct, responses, self._settings)
            self._known[key] = after
            self._left_out += self._is_left_out(after)
        while len(self._known) > _REMEMBERED:
            self._forget(next(iter(self._known)))

    def readings(self) -> dict[str, Reading]:
        """How much is left out, of what was looked at and of what is known."""
        return {
            "prompts/skipped_rate": Rate(self._skipped, self._looked_at),
            "prompts/outside_rate": Rate(self._left_out, len(self._known)),
        }

    def heldout(self, count: int) -> list[Problem]:
        """The held-out problems of the underlying task, whatever their difficulty."""
        return self._task.heldout(count)

    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:
        """A response of the underlying task's crowd."""
        return self._task.warm_start_text(problem, rng)

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """What the underlying task says."""
        return self._task.score(problems, texts)

    def fingerprint(self) -> str:
        """That of the underlying task."""
        return self._task.fingerprint()

    def state(self) -> dict[str, Any]:
        """The underlying task's, the steps, and what is known of each prompt.

        It is taken at every step, hence no copy of the entries: orjson writes them as they are.
        """
        return {"stream": self._task.state(), "steps": self._steps, "known": dict(self._known)}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`; that of a task without a filter is the stream alone."""
        self._task.restore(state.get("stream", state))
        self._steps = state.get("steps", 0)
        self._known = {
            key: each if isinstance(each, _Known) else _Known(**each)
            for key, each in state.get("known", {}).items()
        }
        self._left_out = self._count()

    def _is_worth(self, problem: Problem, rng: random.Random) -> bool:
        known = self._of(problem)
        if known.retired or not self._is_left_out(known):
            return not known.retired
        return rng.random() < self._settings.explore

    def _is_left_out(self, known: _Known) -> bool:
        return known.retired or (known.outside and self._settings.every > 0)

    def _count(self) -> int:
        return sum(map(self._is_left_out, self._known.values()))

    def _forget(self, key: str) -> _Known:
        known = self._known.pop(key, _UNKNOWN)
        self._left_out -= self._is_left_out(known)
        return known

    def _of(self, problem: Problem) -> _Known:
        return self._known.get(_key(problem), _UNKNOWN)


def _key(problem: Problem) -> str:
    """Ids may repeat and prompts may be long: a hash of the prompt."""
    return hashlib.sha256(problem.prompt.encode()).hexdigest()[:16]
