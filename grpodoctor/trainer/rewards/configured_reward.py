"""The weighted sum of several rewards; each term is also recorded unweighted.

A term is a user's function (`FILE.py:function` or `module:function`) or the name of a row of
`BUILTIN`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from grpodoctor.measure.final_answer import has_box
from grpodoctor.trainer.config.sections import BuiltinReward, TaskConfig
from grpodoctor.trainer.rewards.math_check import MathVerifier
from grpodoctor.trainer.rewards.rewarded_task import RewardedTask, Scorer, user_scorer
from grpodoctor.trainer.rewards.user_reward import UserReward
from grpodoctor.trainer.task import Problem, Rewards, Task

_CHARACTERS_PER_POINT = 1000


def _task(task: Task, config: TaskConfig) -> Scorer:  # noqa: ARG001  # the task has its own settings
    """The task's own verifier."""
    return Scorer(task.score)


def _math(task: Task, config: TaskConfig) -> Scorer:  # noqa: ARG001  # works for any task
    """1 where the final answer is mathematically equal to the reference answer."""
    verifier = MathVerifier(config.verify_seconds)

    def score(problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        correct = verifier.verify([problem.answer for problem in problems], texts)
        return Rewards([float(each) for each in correct], correct=correct)

    return Scorer(score, verifier.close)


def _length(task: Task, config: TaskConfig) -> Scorer:  # noqa: ARG001  # needs the texts only
    """Minus the number of characters in thousands: a positive weight rewards short responses."""
    return Scorer(lambda _, texts: Rewards([-len(text) / _CHARACTERS_PER_POINT for text in texts]))


def _boxed(task: Task, config: TaskConfig) -> Scorer:  # noqa: ARG001  # needs the texts only
    r"""1 where the response contains an answer in `\boxed{...}`."""
    return Scorer(lambda _, texts: Rewards([float(has_box(text)) for text in texts]))


BUILTIN: dict[BuiltinReward, Callable[[Task, TaskConfig], Scorer]] = {
    "task": _task,
    "math": _math,
    "length": _length,
    "boxed": _boxed,
}


def with_configured_reward(task: Task, config: TaskConfig) -> Task:
    """The task with the reward of `task.reward` or `task.rewards`; unchanged if neither is set.

    Raises:
        DataError: if a function cannot be imported or called.
        MissingExtraError: if the packages of a built-in reward are not installed.
    """
    if config.reward:
        reward = _user_reward(config.reward, task, config, option="task.reward")
        return RewardedTask(task, user_scorer(reward), (reward.description,))
    if not config.rewards:
        return task
    scorers: dict[str, Scorer] = {}
    notes = []
    for name, term in config.rewards.items():
        builtin = {str(key): build for key, build in BUILTIN.items()}.get(term.function)
        if builtin is not None:
            scorers[name] = builtin(task, config)
            continue
        option = f"task.rewards.{name}.function"
        reward = _user_reward(term.function, task, config, option=option)
        scorers[name] = user_scorer(reward)
        notes.append(reward.description)
    weights = {name: term.weight for name, term in config.rewards.items()}

    def score(problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        terms = {name: scorer.score(problems, texts) for name, scorer in scorers.items()}
        return _weighted_sum(terms, weights)

    def close() -> None:
        for scorer in scorers.values():
            scorer.close()

    return RewardedTask(task, Scorer(score, close), tuple(notes))


def _user_reward(spec: str, task: Task, config: TaskConfig, *, option: str) -> UserReward:
    return UserReward(
        spec,
        seconds=config.reward_seconds,
        columns=task.columns,
        check_form=True,
        option=option,
        show_output=True,
    )


def _weighted_sum(terms: Mapping[str, Rewards], weights: Mapping[str, float]) -> Rewards:
    """The components of a term are recorded as `style.tone` and `style.form`."""
    columns = zip(*(term.total for term in terms.values()), strict=True)
    total = [
        math.fsum(weight * value for weight, value in zip(weights.values(), values, strict=True))
        for values in columns
    ]
    components = {
        f"{name}.{inner}" if inner else name: values
        for name, term in terms.items()
        for inner, values in (term.components or {"": term.total}).items()
    }
    correct = [term.correct for term in terms.values() if term.correct is not None]
    return Rewards(total, components, correct[0] if correct else None)
