"""The responses as the reward functions see them, for trainers whose inside is not known.

TRL documents what it passes to a reward function: prompts, completions, token ids. Nothing private
is used here, so this works on any version that has a list of reward functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.frameworks.rollout_formats.columns import clean, text_of
from grpodoctor.hooks.arrays import to_host
from grpodoctor.hooks.guard import Guard
from grpodoctor.hooks.trl.private_names import has_hidden_task
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.responses import component_name

Array = NDArray[Any]
_MOST_CALLS = 8
"""Generations that are kept if no row is logged; a row seldom covers more."""


@dataclass
class _Responses:
    """The responses of a generation on this rank."""

    prompts: list[str]
    texts: list[str]
    token_ids: list[list[int]]
    prompts_are_whole: bool
    """Whether no image and no environment belongs to a prompt."""
    rewards: dict[int, Array] = field(default_factory=dict)
    """By place of the function; NaN where a function returned None."""


class RewardCalls:
    """Observes the reward functions of a trainer.

    Args:
        trainer: with a list `reward_funcs`.
        guard: the boundary.
    """

    def __init__(self, trainer: Any, guard: Guard) -> None:
        self._trainer = trainer
        given = getattr(trainer, "reward_funcs", None)
        self._functions: list[Any] = list(given) if isinstance(given, list) else []
        self._names = [component_name(_name(each)) for each in self._functions]
        self._responses: list[_Responses] = []
        self.obstacle = self._why_not()
        """Why the responses cannot be recorded; empty if they can."""
        if not self.obstacle:
            trainer.reward_funcs = [
                guard.after(function, "reward functions", partial(self._take, place))
                for place, function in enumerate(self._functions)
            ]  # a new list: the user may have other plans with the old one

    def batch(self, step: int, rank: int) -> RolloutBatch | None:
        """The responses since the previous call; None if there are none."""
        taken, self._responses = self._responses, []
        complete = [each for each in taken if len(each.rewards) == len(self._functions)]
        return _batch(complete, self._names, self._settings(), step, rank) if complete else None

    def _why_not(self) -> str:
        if not self._functions:
            return "the trainer has no list of reward functions"
        for name, function in zip(self._names, self._functions, strict=True):
            if hasattr(function, "parameters") or _is_asynchronous(function):
                return f"{name} is a model or an asynchronous function"
        return ""

    def _settings(self) -> tuple[int, Array]:
        """The group size, and the weights of the functions."""
        args = self._trainer.args
        weights = getattr(args, "reward_weights", None) or [1.0] * len(self._functions)
        return int(getattr(args, "num_generations", 1) or 1), np.asarray(weights, np.float64)

    def _take(
        self,
        place: int,
        rewards: Sequence[float | None],
        *_: Any,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        **columns: Any,
    ) -> None:
        if not self._trainer.model.training:
            return
        if not self._responses or place in self._responses[-1].rewards:
            self._responses = self._responses[1 - _MOST_CALLS :]
            self._responses.append(
                _Responses(
                    [clean(text_of(each)) for each in prompts],
                    [clean(text_of(each)) for each in completions],
                    [list(each) for each in completion_ids],
                    not has_hidden_task(columns),
                )
            )
        values = [np.nan if each is None else float(each) for each in rewards]
        self._responses[-1].rewards[place] = to_host(values).astype(np.float64)


def _batch(
    responses: Sequence[_Responses],
    names: Sequence[str],
    settings: tuple[int, Array],
    step: int,
    rank: int,
) -> RolloutBatch | None:
    group_size, weights_F = settings
    rewards_BF = np.concatenate(
        [
            np.stack([each.rewards[place] for place in range(len(names))], axis=1)
            for each in responses
        ]
    )
    scored_B = ~np.isnan(rewards_BF).all(axis=1)
    rows = np.flatnonzero(scored_B if scored_B.any() else ~scored_B).tolist()
    ids = [row for each in responses for row in each.token_ids]
    prompts = [row for each in responses for row in each.prompts]
    texts = [row for each in responses for row in each.texts]
    tokens_BT, mask_BT = _padded([ids[row] for row in rows])
    columns = dict(zip(names, rewards_BF[rows].T, strict=True)) if len(names) > 1 else {}
    return RolloutBatch(
        step=step,
        sequence_ids=[f"{step}-{rank}-{row}" for row in rows],
        group_ids_B=_groups(responses, group_size, rank)[rows],
        prompt_ids=[blake2b(prompts[row].encode(), digest_size=8).hexdigest() for row in rows],
        prompts=[prompts[row] for row in rows],
        references=[""] * len(rows),
        tokens_BT=tokens_BT,
        mask_BT=mask_BT,
        rewards_B=np.where(scored_B, np.nansum(rewards_BF * weights_F, axis=1), np.nan)[rows],
        texts=[texts[row] for row in rows],
        components=columns if len(columns) == len(names) else {},
        prompts_are_whole=all(each.prompts_are_whole for each in responses),
    )


def _groups(responses: Sequence[_Responses], group_size: int, rank: int) -> Array:
    """TRL passes the responses to a prompt one after the other, and ranks have equally many."""
    groups = []
    for number, each in enumerate(responses):
        count = len(each.prompts)
        groups.append((rank * count + np.arange(count)) // group_size + (number << 32))
    return np.concatenate(groups)


def _padded(ids: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    width = max(map(len, ids), default=0)
    tokens_BT = np.zeros((len(ids), width), np.int64)
    mask_BT = np.zeros((len(ids), width), bool)
    for row, each in enumerate(ids):
        tokens_BT[row, : len(each)], mask_BT[row, : len(each)] = each, True
    return tokens_BT, mask_BT


def _name(function: Any) -> str:
    return clean(str(getattr(function, "__name__", type(function).__name__)))


def _is_asynchronous(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async method
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
