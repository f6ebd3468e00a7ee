"""What a task is: problems, their verification, and how a beginner would answer them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


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
    """What is optimised, one number per response."""
    components: dict[str, list[float]] = field(default_factory=dict)
    """The parts by name, unweighted, one number per response each."""
    correct: list[bool] | None = None
    """Whether the answer is right, whatever the reward says; None if nobody can tell."""


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

    def state(self) -> dict[str, Any]:
        """Where the training stream stands, as JSON; tasks that only draw from `rng` have none."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027  # nothing to restore is normal
        """Continue the training stream where `state` was taken."""
