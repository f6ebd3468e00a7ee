"""Tasks whose responses are scored by something other than the task's own verifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpodoctor.trainer.rewards.user_reward import UserReward
from grpodoctor.trainer.task import Problem, Rewards, Task, WrappedTask

Score = Callable[[Sequence[Problem], Sequence[str]], Rewards]
"""Returns the rewards of responses, one problem each."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores responses, possibly in another process."""

    score: Score
    close: Callable[[], None] = lambda: None
    """Ends the process; the next score starts another."""


class RewardedTask(WrappedTask):
    """A task with another reward; `notes` are lines for the user about it."""

    def __init__(self, task: Task, scorer: Scorer, notes: tuple[str, ...] = ()) -> None:
        super().__init__(task)
        self._scorer, self.notes = scorer, notes

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """The scorer's rewards.

        Raises:
            DataError: if a user's reward function fails.
        """
        return self._scorer.score(problems, texts)

    def close(self) -> None:
        """End the scorer's process and those of the inner task."""
        self._scorer.close()
        super().close()


def user_scorer(reward: UserReward) -> Scorer:
    """A scorer that calls a user's reward function.

    The rewards report which responses are correct only if the function does so for every response.
    """

    def score(problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        values = reward(problems, texts)
        correct = [each for each in values.correct if each is not None]
        return Rewards(
            values.total, values.components, correct if len(correct) == len(texts) else None
        )

    return Scorer(score, reward.close)
