"""Several rewards at once: their weighted sum is the reward, and each is recorded as it is.

A term is a function of the user's own, `module:function`, or one of `BUILTIN` by its name. A new
one is a row there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from grpodoctor.trainer.config.sections import BuiltinReward, RewardTerm, TaskConfig
from grpodoctor.trainer.data.tasks.base import Problem, Rewards, Task
from grpodoctor.trainer.rewards.final_answer import has_box
from grpodoctor.trainer.rewards.functions import Judge, UserReward
from grpodoctor.trainer.rewards.math_check import MathJudge

_THOUSAND = 1000


def _task(task: Task, config: TaskConfig) -> Judge:  # noqa: ARG001  # the task has its own settings
    """The task's own verifier."""
    return task.score


def _math(task: Task, config: TaskConfig) -> Judge:  # noqa: ARG001  # any task with answers
    """1 where the final answer equals the problem's as mathematics."""
    judge = MathJudge(config.verify_seconds)

    def score(problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        verdicts = judge.judge([each.answer for each in problems], texts)
        return Rewards([float(verdict) for verdict in verdicts], correct=verdicts)

    return score


def _length(task: Task, config: TaskConfig) -> Judge:  # noqa: ARG001  # of the texts alone
    """Minus the number of characters, in thousands: with a positive weight, brevity pays."""
    return lambda _, texts: Rewards([-len(text) / _THOUSAND for text in texts])


def _boxed(task: Task, config: TaskConfig) -> Judge:  # noqa: ARG001  # of the texts alone
    r"""1 where the response has an answer in `\boxed{...}`."""
    return lambda _, texts: Rewards([float(has_box(text)) for text in texts])


BUILTIN: dict[BuiltinReward, Callable[[Task, TaskConfig], Judge]] = {
    "task": _task,
    "math": _math,
    "length": _length,
    "boxed": _boxed,
}


def mixed(task: Task, config: TaskConfig) -> Judge:
    """The judge that adds up `task.rewards`.

    Args:
        task: the problems' own, whose verifier is the term `task`.
        config: names the terms and their weights.

    Raises:
        DataError: if there is no such function.
        MissingExtraError: if the packages of a built-in one are not installed.
    """
    judges = {name: _judge(term, task, config) for name, term in config.rewards.items()}
    weights = {name: term.weight for name, term in config.rewards.items()}

    def score(problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        parts = {name: judge(problems, texts) for name, judge in judges.items()}
        return _sum(parts, weights)

    return score


def _judge(term: RewardTerm, task: Task, config: TaskConfig) -> Judge:
    for name, build in BUILTIN.items():
        if term.function == name:
            return build(task, config)
    return UserReward(term.function)


def _sum(parts: Mapping[str, Rewards], weights: Mapping[str, float]) -> Rewards:
    """The parts of a part are recorded in its place, as `style.tone` and `style.form`."""
    rows = zip(*(part.total for part in parts.values()), strict=True)
    total = [
        math.fsum(weight * each for weight, each in zip(weights.values(), row, strict=True))
        for row in rows
    ]
    components = {
        f"{name}.{inner}" if inner else name: values
        for name, part in parts.items()
        for inner, values in (part.components or {"": part.total}).items()
    }
    verdicts = [part.correct for part in parts.values() if part.correct is not None]
    return Rewards(total, components, verdicts[0] if verdicts else None)
