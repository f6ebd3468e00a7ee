"""Reward functions of the user's own: found, called, and checked before anything trusts them."""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpodoctor.errors import DataError
from grpodoctor.measure.responses import component_name
from grpodoctor.trainer.data.tasks.base import Problem, Rewards, Task

RewardFunction = Callable[[list[str], list[str], list[str]], Any]
"""Called with prompts, completions and answers; returns `list[float]`, or components by name.

What it returns is anybody's guess until `UserReward` has checked it.
"""

_CORRECT = "correct"
_LARGEST = 1e100
"""Bound of a reward's magnitude: the square of a larger one would soon overflow in a variance."""
_ANYTHING = (Exception, SystemExit)
"""What a user's code may raise; one that ends the process would end the training unexplained."""
_REMEDY = "return one finite number per completion, or a dict of such lists"


def load_reward(spec: str) -> RewardFunction:
    """The function that `module:function` names; modules of the working directory count.

    Raises:
        DataError: if the module or the function is missing or the module fails to import.
    """
    module_name, colon, attribute = spec.partition(":")
    if not (module_name and colon and attribute):
        raise DataError(
            f"{spec[:80]!r} names no reward function",
            where="task.reward",
            remedy="write module:function",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), attribute, None)
    except _ANYTHING as error:
        raise DataError(
            f"the module {module_name!r} cannot be imported: {_explain(error)}", where="task.reward"
        ) from error
    if not callable(function):
        raise DataError(f"{module_name!r} has no function {attribute!r}", where="task.reward")
    result: RewardFunction = function
    return result


Judge = Callable[[Sequence[Problem], Sequence[str]], Rewards]
"""Says what the responses to some problems are worth."""


class RewardedTask(Task):
    """A task whose responses somebody else judges.

    Args:
        task: gives the problems.
        judge: says what responses to them are worth.
    """

    def __init__(self, task: Task, judge: Judge) -> None:
        self._task, self._judge = task, judge
        self.name, self.max_length_hint = task.name, task.max_length_hint

    def problems(self, rng: random.Random, count: int) -> list[Problem]:
        """The next problems of the underlying task."""
        return self._task.problems(rng, count)

    def heldout(self, count: int) -> list[Problem]:
        """The held-out problems of the underlying task."""
        return self._task.heldout(count)

    def warm_start_text(self, problem: Problem, rng: random.Random) -> str:
        """A response of the underlying task's crowd."""
        return self._task.warm_start_text(problem, rng)

    def fingerprint(self) -> str:
        """That of the underlying task: the reward has no part in the warm start."""
        return self._task.fingerprint()

    def state(self) -> dict[str, Any]:
        """Where the underlying task's stream stands."""
        return self._task.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue the underlying task's stream."""
        self._task.restore(state)

    def score(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """What the judge says.

        Raises:
            DataError: if a function of the user's own fails.
        """
        return self._judge(problems, texts)


class UserReward:
    """A reward function of the user's own, which may do anything.

    Args:
        spec: `module:function`.

    Raises:
        DataError: if there is no such function.
    """

    def __init__(self, spec: str) -> None:
        self._spec, self._function = spec, load_reward(spec)

    def __call__(self, problems: Sequence[Problem], texts: Sequence[str]) -> Rewards:
        """What the function says.

        A dict is taken for components, whose sum is the reward; its key `correct`, where it holds
        nothing but booleans, also says which answers are right.

        Raises:
            DataError: if the function raises or returns anything but finite numbers, one each.
        """
        columns = (
            [each.prompt for each in problems],
            list(texts),
            [each.answer for each in problems],
        )
        returned = self._call(columns)
        if not isinstance(returned, Mapping):
            return Rewards(self._numbers(returned, len(texts), ""))
        if not returned:
            raise self._error("returned no components", _REMEDY)
        self._check_names([str(name) for name in returned])
        components = {
            str(name): self._numbers(values, len(texts), f" in component {str(name)[:40]!r}")
            for name, values in returned.items()
        }
        total = [math.fsum(row) for row in zip(*components.values(), strict=True)]
        return Rewards(total, components, _verdicts(returned.get(_CORRECT)))

    def _check_names(self, names: list[str]) -> None:
        """Refuse names that are not told apart where they are recorded."""
        recorded: dict[str, str] = {}
        for name in names:
            if not name.strip():
                raise self._error("returned a component without a name", "name every component")
            plain = component_name(name)
            if plain in recorded:
                raise self._error(
                    f"returned the components {recorded[plain][:40]!r} and {name[:40]!r}, which "
                    "are one name where they are recorded",
                    "give them names that differ in more than / and _",
                )
            recorded[plain] = name

    def _call(self, columns: tuple[list[str], list[str], list[str]]) -> Any:
        try:
            return self._function(*columns)
        except _ANYTHING as error:
            place = self._first_failing(columns)
            raise self._error(
                f"raised {_explain(error)} {place}", "make it return a number for any text"
            ) from error

    def _first_failing(self, columns: tuple[list[str], list[str], list[str]]) -> str:
        """Ask about one completion at a time, so that the message can name the first bad one."""
        for index, (prompt, completion, answer) in enumerate(zip(*columns, strict=True)):
            try:
                self._function([prompt], [completion], [answer])
            except _ANYTHING:
                return f"at completion {index}"
        return "for the whole batch, though for no completion alone"

    def _numbers(self, values: object, count: int, which: str) -> list[float]:
        plain = _native(values)
        if isinstance(plain, str | Mapping) or not isinstance(plain, Iterable):
            raise self._error(f"returned {type(values).__name__}{which}", _REMEDY)
        entries = [_native(entry) for entry in plain]
        if len(entries) != count:
            raise self._error(
                f"returned {len(entries)} rewards for {count} completions{which}", _REMEDY
            )
        for index, entry in enumerate(entries):
            if not isinstance(entry, int | float) or not abs(entry) <= _LARGEST:
                raise self._error(
                    f"returned {_shown(entry)} for completion {index}{which}", _REMEDY
                )
        return [float(entry) for entry in entries]

    def _error(self, what: str, remedy: str) -> DataError:
        return DataError(
            f"the reward function {self._spec} {what}", where="task.reward", remedy=remedy
        )


def _verdicts(values: object) -> list[bool] | None:
    plain = _native(values)
    if not isinstance(plain, Iterable):
        return None
    entries = [_native(entry) for entry in plain]
    return entries if all(isinstance(entry, bool) for entry in entries) else None


def _native(value: Any) -> Any:
    """Arrays and their scalars as Python's own lists and numbers; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def _shown(entry: object) -> str:
    if isinstance(entry, int | float) and math.inf > abs(entry) > _LARGEST:
        return f"a number beyond {_LARGEST:g}"  # it may have too many digits to be shown
    return repr(str(entry)[:40])


def _explain(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
