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
from grpodoctor.measure.groups import PROMPT_HASH, hashes_by_group
from grpodoctor.measure.mismatch import TokenPairs, pair_readings
from grpodoctor.measure.response_table import ResponseTable, table_readings
from grpodoctor.vocabulary.values import Reading

SUFFIX = "-driver"
"""Follows the name of the run directory of the workers."""
_FIRST_STEP = 1
"""verl counts its steps from 1."""
_BOUNDED = ("grpo_vectorized",)
"""Estimators that divide by the group's standard deviation, which bounds an advantage."""
SAMPLER, LEARNER = "rollout_log_probs", "old_log_probs"
"""verl's names of the log-probabilities of the sampler, and of the learner before the update."""
PROMPTS = "prompts"
"""verl's name of the prompts' token ids, padded on the left to one width in a batch."""
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
        self.hook.missing("texts and tokens", "verl does not pass them to advantage estimators")
        self.hook.begin(model=model, config=config, resume=resumed_step > 0)

    def observe(
        self,
        estimator: str,
        arguments: Mapping[str, Any],
        result: Any,
        tensors: Mapping[str, Any] | None = None,
    ) -> None:
        """After the advantages of a step: record it.

        Args:
            estimator: verl's name of the estimator.
            arguments: its arguments, under verl's names.
            result: advantages and returns.
            tensors: `SAMPLER` and `LEARNER`, shape (B, T) each, and `PROMPTS`, shape (B, P), as far
                as verl has them.
        """
        self.begin({"algorithm": {"adv_estimator": estimator}})
        tensors = tensors or {}
        readings = advantage_readings(estimator, arguments, result[0], tensors.get(PROMPTS))
        mismatch = mismatch_of(tensors, arguments["response_mask"], self._step)
        if isinstance(mismatch, str):
            self.hook.missing("the mismatch of sampler and learner", mismatch)
        else:
            readings |= mismatch
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
    estimator: str, arguments: Mapping[str, Any], advantages: Any, prompts: Any = None
) -> dict[str, Reading]:
    """Readings of the rewards, lengths, groups and advantages of a batch.

    Args:
        estimator: verl's name of the estimator.
        arguments: the arguments of the estimator, under verl's names.
        advantages: of each token, shape (B, T).
        prompts: token ids, shape (B, P); None if they are not the whole task.
    """
    mask_BT = to_host(arguments["response_mask"]).astype(bool)
    rewards_BT = to_host(arguments["token_level_rewards"]).astype(np.float64)
    columns: dict[str, NDArray[Any]] = {
        "reward": np.where(mask_BT, rewards_BT, 0.0).sum(axis=1),
        "length": mask_BT.sum(axis=1).astype(np.float64),
        "group": _group_ids(arguments.get("index"), len(mask_BT)),
        "text": np.zeros(len(mask_BT), np.uint64),
    }
    if prompts is not None and columns["group"].all() and len(prompts) == len(mask_BT):
        prompts_BP = to_host(prompts)
        columns[PROMPT_HASH] = hashes_by_group(
            columns["group"], lambda row: np.ascontiguousarray(prompts_BP[row]).tobytes()
        )
    values_B = _of_responses(to_host(advantages).astype(np.float64), mask_BT)
    if values_B is not None:
        columns["advantage"] = values_B
    readings = table_readings(ResponseTable(columns))
    if estimator not in _BOUNDED:
        readings.pop("advantage/bound_excess", None)
    return readings


def mismatch_of(
    logprobs: Mapping[str, Any], response_mask: Any, step: int
) -> dict[str, Reading] | str:
    """`mismatch/*` of a batch, or why there is none.

    Args:
        logprobs: those of verl's batch, by verl's names.
        response_mask: the generated tokens, shape (B, T).
        step: the trainer's step.
    """
    if SAMPLER not in logprobs:
        return "set actor_rollout_ref.rollout.calculate_log_probs=True"
    if LEARNER not in logprobs:
        return "verl has not recomputed the log-probabilities"
    mask_BT = to_host(response_mask).astype(bool)
    sampler_BT, learner_BT = (to_host(logprobs[name]) for name in (SAMPLER, LEARNER))
    if not sampler_BT.shape == learner_BT.shape == mask_BT.shape:
        return "the shapes of verl's log-probabilities and of its mask differ"
    if np.array_equal(sampler_BT[mask_BT], learner_BT[mask_BT]):
        return "in bypass mode, verl uses the sampler's values as the learner's"
    rows_N, places_N = np.nonzero(mask_BT)[0], (np.cumsum(mask_BT, axis=1) - 1)[mask_BT]
    tokens = TokenPairs.select(rows_N, places_N, learner_BT[mask_BT], sampler_BT[mask_BT])
    return pair_readings(tokens, [f"{step}-{row}" for row in range(len(mask_BT))])


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
