"""Reward functions of the user's own: found, called, and checked before anything trusts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

RewardFunction = Callable[
    [list[str], list[str], list[str]], Sequence[float] | Mapping[str, Sequence[float]]
]
"""Called with prompts, completions and answers."""


def load_reward(spec: str) -> RewardFunction:
    """The function that `module:function` names; modules of the working directory count.

    Raises:
        DataError: if the module or the function is missing or the module fails to import.
    """
    raise NotImplementedError
