"""Advantage estimators that delegate to verl's own and record rewards, groups and advantages.

`grpodoctor_rloo` computes what verl's `rloo` computes. verl compares the names of some estimators
in its trainer: it gives further arguments to GDPO, ReMax and the optimal token baselines, trains a
critic for GAE, and reduces several trajectories of a session for GRPO. A variant of these under
another name would change the training, so there is none.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FrameType
from typing import Any

from grpodoctor.frameworks.verl.knobs import OBSERVED
from grpodoctor.hooks.verl.driver_recorder import LEARNER, PROMPTS, SAMPLER, driver_recorder

_GIVEN = {"token_level_rewards", "response_mask", "config", "index"}
"""Arguments that verl's trainer gives to an estimator of any name."""
_GIVEN_BY_NAME = {"batch", "non_tensor_batch"}
"""Optional arguments that the trainer gives only to estimators of certain names."""
_BY_NAME = {"grpo", "gae"}
"""Estimators that the trainer treats differently although their arguments are these."""

_MULTIMODAL = "multi_modal"
"""Beginning of the names of verl's columns of images."""
_TURNS, _ONE_EXCHANGE = "__num_turns__", 2
"""verl's column of the number of messages of a response, the prompt included."""
_CALLER = "compute_advantage"
"""verl's function that calls an estimator."""

Estimator = Callable[..., tuple[Any, Any]]


def register_estimators() -> None:
    """Register an observed variant of each estimator that verl treats alike under any name.

    Raises:
        ImportError: if verl is not installed, or is too old to have a registry.
    """
    core_algos: Any = import_module("verl.trainer.ppo.core_algos")
    for name, estimator in dict(core_algos.ADV_ESTIMATOR_REGISTRY).items():
        if is_observable(name, estimator):
            core_algos.register_adv_est(f"{OBSERVED}_{name}")(observed_estimator(name, estimator))


def is_observable(name: str, estimator: Estimator) -> bool:
    """Whether an estimator computes the same under another name."""
    parameters = inspect.signature(estimator).parameters
    required = {each.name for each in parameters.values() if _is_required(each)}
    takes_alike = required <= _GIVEN and not _GIVEN_BY_NAME & parameters.keys()
    return takes_alike and name not in _BY_NAME and not name.startswith(OBSERVED)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_named = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    return is_named and parameter.default is parameter.empty


def observed_estimator(name: str, original: Estimator) -> Estimator:
    """An estimator that returns what `original` returns, and records it.

    Args:
        name: verl's name of the estimator.
        original: the estimator; its exceptions pass unchanged.
    """

    @functools.wraps(original)
    def estimator(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        result = original(*args, **kwargs)
        recorder = driver_recorder()
        if recorder is not None:
            guard = recorder.hook.guard
            call = guard.run("call", inspect.signature(original).bind, *args, **kwargs)
            held = guard.run("batch", tensors_behind, inspect.currentframe())
            if call is not None:
                guard.run("advantages", recorder.observe, name, call.arguments, result, held)
        return result

    return estimator


def tensors_behind(frame: FrameType | None) -> dict[str, Any]:
    """Log-probabilities and prompts that verl's trainer holds while it calls an estimator.

    Estimators do not receive them. They are in the batch of `compute_advantage`, in both of verl's
    trainers; nothing there is changed. Prompts are left out if they are not the whole task, because
    the batch has images or responses of several turns.

    Args:
        frame: of the estimator.

    Returns:
        The tensors under verl's names.
    """
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != _CALLER:
        return {}
    data: Any = caller.f_locals.get("data")
    batch: Any = getattr(data, "batch", None)
    names = () if batch is None else batch.keys()
    wanted = [SAMPLER, LEARNER]
    if not _has_hidden_task(getattr(data, "non_tensor_batch", None) or {}):
        wanted.append(PROMPTS)
    return {name: batch[name] for name in wanted if name in names}


def _has_hidden_task(columns: Mapping[str, Any]) -> bool:
    """Whether an image belongs to the prompts, or an environment answered the policy."""
    if any(name.startswith(_MULTIMODAL) for name in columns):
        return True
    turns = columns.get(_TURNS)
    return turns is not None and max(map(int, turns), default=0) > _ONE_EXCHANGE
