"""Tasks whose responses are scored by something other than the task's own verifier."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from grpodoctor.trainer.rewards.user_reward import UserReward
from grpodoctor.trainer.task import Problem, Rewards, Task

Scorer = Callable[[Sequence[Problem], Sequence[str]], Rewards]
"""Returns the rewards of responses, one problem each."""


class RewardedTask(Task):
    """A task with another reward.

    Args:
        task: gives the problems.
        scorer: scores the responses.
        notes: lines for the user about the scorer.
    """

    def __init__(self, task: Task, scorer: Scorer, notes: tuple[str, ...] = ()) -> None:
        self._task, self._scorer, self.notes = task, scorer, notes
        self.name, self.max_length_hint = task.name, task.max_length_hint

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next problems of the underlying task."""
        return self._task.problems(rng, count)

    def heldout(self, count: int) -> list[Problem]:
        """The held-out problems of the underlying task."""
        return self._task.heldout(count)

    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:
        """A warm-start response of the underlying task."""
        return self._task.warm_start_text(problem, rng)

    def fingerprint(self) -> str:
        """The underlying task's fingerprint: the reward does not affect the warm start."""
        return self._task.fingerprint()

    def state(self) -> dict[str, Any]:
        """The state of the underlying task's stream."""
        return self._task.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the underlying task's stream."""
        self._task.restore(state)

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """The scorer's rewards.

        Raises:
            DataError: if a user's reward function fails.
        """
        return self._scorer(problems, texts)


def user_scorer(reward: UserReward) -> Scorer:
    """A scorer that calls a user's reward function.

    The rewards say which responses are correct only if the function says so for every response.
    """

    def score(problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        values = reward(problems, texts)
        correct = [each for each in values.correct if each is not None]
        return Rewards(
            values.total, values.components, correct if len(correct) == len(texts) else None
        )

    return score
