"""Held-out accuracy by the task's own verification, whatever the reward under test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.loading import build_task

if TYPE_CHECKING:
    from grpodoctor.trainer.loop import Trainer
    from grpodoctor.trainer.task import Problem


class TrueAccuracy:
    """Verifies the responses of each held-out evaluation of a trainer.

    Args:
        trainer: a trainer before its first step; the scoring of its task is wrapped.
    """

    def __init__(self, trainer: Trainer) -> None:
        task, evaluation = trainer.config.task, trainer.config.evaluation
        self._task = build_task(TaskConfig(name=task.name, difficulty=task.difficulty))
        self._heldout = {each.prompt for each in trainer.task.heldout(evaluation.prompts)}
        self._trainer = trainer
        self.by_step: dict[int, float] = {}
        """Share of right answers by the step after which the evaluation was made."""
        own: Any = trainer
        own.task.score = self._verifying(own.task.score)

    def _verifying(self, score: Any) -> Any:
        def verified(problems: Sequence[Problem], texts: Sequence[str]) -> Any:
            if all(problem.prompt in self._heldout for problem in problems):
                correct = self._task.score(problems, texts).correct or [False]
                self.by_step[self._trainer.done] = sum(correct) / len(correct)
            return score(problems, texts)

        return verified
