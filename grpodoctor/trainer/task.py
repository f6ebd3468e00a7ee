"""The interface of a task: problems, their verification, and warm-start responses."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.vocabulary.values import Reading


@dataclass(frozen=True, slots=True)
class Problem:
    """A prompt and the answer it is verified against."""

    id: str
    prompt: str
    answer: str
    columns: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The row of the data, for reward functions that ask for columns by name."""

    @property
    def messages(self) -> tuple[Mapping[str, Any], ...]:
        """Always empty: the trainer's prompts are text, not conversations."""
        return ()


@dataclass(frozen=True, slots=True)
class Rewards:
    """The rewards of B responses."""

    total: list[float]
    """The optimized reward, one number per response."""
    components: dict[str, list[float]] = field(default_factory=dict)
    """The components by name, unweighted, one number per response each."""
    correct: list[bool] | None = None
    """Whether each answer is right, independent of the reward; None if unknown."""

    def plus(self, name: str, values: list[float], weight: float = 1.0) -> Rewards:
        """The rewards with another component, recorded without its weight.

        If there are no components, the existing reward becomes the component `task`.

        Raises:
            DataError: if there is already a component of that name.
        """
        if name in self.components:
            raise DataError(
                f"the reward has a component {name!r}, a name that grpodoctor adds",
                where="task.reward",
                remedy="give the component another name",
            )
        total = [reward + weight * value for reward, value in zip(self.total, values, strict=True)]
        components = self.components or {"task": self.total}
        return Rewards(total, {**components, name: values}, self.correct)


def correctness(rewards: Rewards) -> list[bool]:
    """Whether each response is right.

    Raises:
        DataError: if the reward does not say.
    """
    if rewards.correct is None:
        raise DataError(
            "a setting requires the correctness of responses, which the reward does not return",
            where="task.reward",
            remedy="return a component `correct` of booleans, or set difficulty.every=0, "
            "difficulty.retire_at=0, rollout.variance_of=reward and overlong.only_correct=false",
        )
    return rewards.correct


class Task(ABC):
    """A source of problems, and the verifier of their answers."""

    name: str
    """A short name for records."""
    max_length_hint: int | None = None
    """Tokens that a full response of the built-in model needs; None if unknown."""
    columns: frozenset[str] = frozenset({"answer"})
    """Names of the columns that problems have."""
    notes: tuple[str, ...] = ()
    """Lines to show to the user before training."""

    @abstractmethod
    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next `count` problems of the training stream."""

    @abstractmethod
    def heldout(self, count: int) -> list[Problem]:
        """The same problems at every call, never used in training; fewer if not enough exist."""

    @abstractmethod
    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:
        """A response for the warm start of the built-in model."""

    @abstractmethod
    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """The rewards of `texts`, the responses to `problems` in the same order.

        Raises:
            DataError: if a user's reward function fails.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes with anything that affects the warm start's texts."""

    def begin_step(self) -> None:  # noqa: B027  # optional
        """Called before a training step draws its problems."""

    def observe(self, problems: Sequence[Problem], rewards: Rewards) -> None:  # noqa: B027  # optional
        """Called with the rewards of training responses, but not with those of an evaluation.

        Raises:
            DataError: if the task requires the correctness and the reward does not say.
        """

    def readings(self) -> dict[str, Reading]:
        """The task's metrics of the current step."""
        return {}

    def state(self) -> dict[str, Any]:
        """The state of the training stream, as JSON; empty for tasks that only draw from `rng`."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027  # optional
        """Continue the training stream from a state."""

    def close(self) -> None:  # noqa: B027  # optional
        """End the processes that score responses; the next score starts them again."""


class WrappedTask(Task):
    """A task that changes some methods of another one and passes on the rest."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.name, self.max_length_hint = task.name, task.max_length_hint
        self.columns, self.notes = task.columns, task.notes

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next problems of the inner task."""
        return self._task.problems(rng, count)

    def heldout(self, count: int) -> list[Problem]:
        """The held-out problems of the inner task."""
        return self._task.heldout(count)

    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:
        """A warm-start response of the inner task."""
        return self._task.warm_start_text(problem, rng)

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """The rewards of the inner task."""
        return self._task.score(problems, texts)

    def fingerprint(self) -> str:
        """The fingerprint of the inner task: wrapping does not affect the warm start."""
        return self._task.fingerprint()

    def state(self) -> dict[str, Any]:
        """The state of the inner task's stream."""
        return self._task.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the inner task's stream."""
        self._task.restore(state)

    def close(self) -> None:
        """End the inner task's processes."""
        self._task.close()
