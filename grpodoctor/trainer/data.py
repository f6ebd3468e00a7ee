"""The task of a run: a built-in one, or the user's own prompts and answers from a file."""

from __future__ import annotations

from grpodoctor.trainer.config import TaskConfig
from grpodoctor.trainer.tasks.base import Task


def build_task(config: TaskConfig) -> Task:
    """The task that `config` names, with the user's data and reward where given.

    Raises:
        ConfigError: if there is no task of that name.
        DataError: if the data or the reward function cannot be used.
    """
    raise NotImplementedError
