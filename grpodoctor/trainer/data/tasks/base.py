"""What a task is: problems, their verification, and how a beginner would answer them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class Rewards:
    """The rewards of B responses."""

    total: list[float]
    """What is optimized, one number per response."""
    components: dict[str, list[float]] = field(default_factory=dict)
    """The parts by name, unweighted, one number per response each."""
    correct: list[bool] | None = None
    """Whether the answer is right, whatever the reward says; None if nobody can tell."""

    def plus(self, name: str, values: list[float], weight: float = 1.0) -> Rewards:
        """These with one component more, recorded without its weight.

        Rewards without components are a component from then on, `task`: so they stay to be seen.

        Raises:
            DataError: if there is a component of that name.
        """
        if name in self.components:
            raise DataError(
                f"the reward has a component {name!r}, which is the name of what is added to it",
                where="task.reward",
                remedy="give the component another name",
            )
        total = [each + weight * more for each, more in zip(self.total, values, strict=True)]
        components = self.components or {"task": self.total}
        return Rewards(total, {**components, name: values}, self.correct)


def verdicts(rewards: Rewards) -> list[bool]:
    """Which responses are right.

    Raises:
        DataError: if nobody can tell.
    """
    if rewards.correct is None:
        raise DataError(
            "a setting needs to know which responses are right, and the reward does not say",
            where="task.reward",
            remedy="have it return a component `correct` of booleans, or set difficulty.every=0, "
            "difficulty.retire_at=0, rollout.variance_of=reward and overlong.only_correct=false",
        )
    return rewards.correct


class Task(ABC):
    """A source of problems and the judge of their answers."""

    name: str
    """A short name for records."""
    max_length_hint: int | None = None
    """Tokens that a full response of the built-in model needs; None if unknown."""

    @abstractmethod
    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next `count` problems of the training stream."""

    @abstractmethod
    def heldout(self, count: int) -> list[Problem]:
        """The same problems at every call, never seen in training; fewer if there are fewer."""

    @abstractmethod
    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:
        """A response such as the built-in model is to begin with."""

    @abstractmethod
    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """The rewards of `texts`, the responses to `problems` in the same order.

        Raises:
            DataError: if a reward function of the user's own fails.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes with anything that changes the warm start's texts."""

    def begin_step(self) -> None:  # noqa: B027  # most tasks do not care
        """A training step is about to draw its problems."""

    def observe(self, problems: Sequence[Problem], rewards: Rewards) -> None:  # noqa: B027  # nor here
        """What training responses to `problems` were worth; evaluation is not told.

        Raises:
            DataError: if the task needs to know which are right and nobody can tell.
        """

    def readings(self) -> dict[str, Reading]:
        """What the task has to say about the step that began last."""
        return {}

    def state(self) -> dict[str, Any]:
        """Where the training stream stands, as JSON; tasks that only draw from `rng` have none."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027  # nothing to restore is normal
        """Continue the training stream where `state` was taken."""
