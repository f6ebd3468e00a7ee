"""Records what verl's driver computes: rewards, groups and advantages, once per step."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.hooks.arrays import to_host
from grpodoctor.hooks.guard import reason_of
from grpodoctor.hooks.run_hook import RunHook, hook_options, timestamped_directory
from grpodoctor.hooks.verl.loss_recorder import RUN_DIR
from grpodoctor.measure.response_table import ResponseTable, table_readings
from grpodoctor.vocabulary.values import Reading

SUFFIX = "-driver"
"""Follows the name of the run directory of the workers."""
_FIRST_STEP = 1
"""verl counts its steps from 1."""
_BOUNDED = ("grpo_vectorized",)
"""Estimators that divide by the group's standard deviation, which bounds an advantage."""
_log = logging.getLogger("grpodoctor")


class DriverRecorder:
    """The hook in verl's driver process."""

    def __init__(self) -> None:
        given = os.environ.get(RUN_DIR)
        base = Path(given) if given else timestamped_directory()
        options = hook_options(base.with_name(base.name + SUFFIX), "none", "off", 8)
        self.hook = RunHook("verl", options, base)
        self._step = _FIRST_STEP
        self._has_begun = False

    def begin(self, config: Mapping[str, Any], model: str = "", resumed_step: int = 0) -> None:
        """Open the record; the second call does nothing.

        Args:
            config: verl's configuration, or what is known of it.
            model: path of the model.
            resumed_step: the step of the checkpoint from which the training continues.
        """
        if self._has_begun:
            return
        self._has_begun = True
        self._step = resumed_step + _FIRST_STEP
        self.hook.missing("texts and log-probabilities", "an advantage estimator does not see them")
        self.hook.begin(model=model, config=config, resume=resumed_step > 0)

    def observe(self, estimator: str, arguments: Mapping[str, Any], result: Any) -> None:
        """After the advantages of a step: record it.

        Args:
            estimator: verl's name of the estimator.
            arguments: its arguments, under verl's names.
            result: advantages and returns.
        """
        self.begin({"algorithm": {"adv_estimator": estimator}})
        readings = advantage_readings(estimator, arguments, result[0])
        self.hook.begin_step(self._step)
        self.hook.end_step(self._step, readings)
        self._step += 1

    def saved(self, step: int, directory: str) -> None:
        """After a checkpoint: note it, and continue with the trainer's own step number.

        Args:
            step: the trainer's step counter.
            directory: directory of the checkpoint.
        """
        self.hook.event("checkpoint", step, {"directory": directory})
        self._step = step + 1


def advantage_readings(
    estimator: str, arguments: Mapping[str, Any], advantages: Any
) -> dict[str, Reading]:
    """Readings of the rewards, lengths, groups and advantages of a batch.

    Args:
        estimator: verl's name of the estimator.
        arguments: the arguments of the estimator, under verl's names.
        advantages: of each token, shape (B, T).
    """
    mask_BT = to_host(arguments["response_mask"]).astype(bool)
    rewards_BT = to_host(arguments["token_level_rewards"]).astype(np.float64)
    columns: dict[str, NDArray[Any]] = {
        "reward": np.where(mask_BT, rewards_BT, 0.0).sum(axis=1),
        "length": mask_BT.sum(axis=1).astype(np.float64),
        "group": _group_ids(arguments.get("index"), len(mask_BT)),
        "text": np.zeros(len(mask_BT), np.uint64),
    }
    values_B = _of_responses(to_host(advantages).astype(np.float64), mask_BT)
    if values_B is not None:
        columns["advantage"] = values_B
    readings = table_readings(ResponseTable(columns))
    if estimator not in _BOUNDED:
        readings.pop("advantage/bound_excess", None)
    return readings


def _group_ids(index: Any, count: int) -> NDArray[np.uint64]:
    """Equal numbers from 1 for equal ids of prompts; zeros, for unknown, without ids."""
    if index is None:
        return np.zeros(count, np.uint64)
    names = [str(each) for each in index]
    _, numbers = np.unique(names, return_inverse=True)
    return numbers.astype(np.uint64) + np.uint64(1)


def _of_responses(
    advantages_BT: NDArray[np.float64], mask_BT: NDArray[np.bool_]
) -> NDArray[np.float64] | None:
    """The advantage of each response; None if an advantage differs within a response."""
    lowest_B = np.where(mask_BT, advantages_BT, np.inf).min(axis=1, initial=np.inf)
    highest_B = np.where(mask_BT, advantages_BT, -np.inf).max(axis=1, initial=-np.inf)
    filled_B = mask_BT.any(axis=1)
    if not np.allclose(lowest_B[filled_B], highest_B[filled_B]):
        return None
    values_B: NDArray[np.float64] = np.where(filled_B, lowest_B, np.nan)
    return values_B


@functools.cache
def _recorder(_pid: int) -> DriverRecorder | None:
    try:
        return DriverRecorder()
    except Exception as error:  # noqa: BLE001 - the boundary to the training
        _log.warning("verl's driver is not recorded: %s", reason_of(error))
        return None


def driver_recorder() -> DriverRecorder | None:
    """The recorder of this process; None if it cannot be made. A fork gets its own."""
    return _recorder(os.getpid())
