"""Policy losses that delegate to verl's own and record their tokens.

`grpodoctor_gspo` computes what verl's `gspo` computes; `grpodoctor` is `grpodoctor_vanilla`. Only
the public registry of verl is used, and no loss of verl is replaced.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from grpodoctor.frameworks.verl.knobs import OBSERVED
from grpodoctor.hooks.guard import reason_of
from grpodoctor.hooks.verl.loss_recorder import LossRecorder, unknown_metrics

_DEFAULT = "vanilla"
_log = logging.getLogger("grpodoctor")

PolicyLoss = Callable[..., tuple[Any, dict[str, Any]]]


def register_losses() -> None:
    """Register an observed variant of each policy loss that verl has.

    Raises:
        ImportError: if verl is not installed, or is too old to have a registry.
    """
    core_algos: Any = import_module("verl.trainer.ppo.core_algos")
    losses = {
        name: loss
        for name, loss in core_algos.POLICY_LOSS_REGISTRY.items()
        if not name.startswith(OBSERVED)
    }
    for name, loss in losses.items():
        core_algos.register_policy_loss(f"{OBSERVED}_{name}")(observed(name, loss))
    core_algos.register_policy_loss(OBSERVED)(observed(_DEFAULT, losses[_DEFAULT]))


def observed(mode: str, original: PolicyLoss) -> PolicyLoss:
    """A loss that returns what `original` returns, plus metrics, and records its tokens.

    Args:
        mode: verl's name of the loss.
        original: the loss; its exceptions pass unchanged.
    """
    signature = inspect.signature(original)

    @functools.wraps(original)
    def loss(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        recorder = _recorder(mode, os.getpid())
        call = None
        if recorder is not None:
            call = recorder.hook.guard.run("call", signature.bind, *args, **kwargs)
        if recorder is None or call is None:
            result, metrics = original(*args, **kwargs)
            return result, {**metrics, **unknown_metrics(mode)}
        guard = recorder.hook.guard
        guard.run("clip", recorder.prepare, call.arguments)
        result, metrics = original(*call.args, **call.kwargs)
        own = guard.run("tokens of the loss", recorder.observe, call.arguments, result)
        return result, {**metrics, **unknown_metrics(mode), **(own or {})}

    return loss


@functools.cache
def _recorder(mode: str, _pid: int) -> LossRecorder | None:
    """The recorder of this process; None if it cannot be made. A fork gets its own."""
    try:
        return LossRecorder(mode)
    except Exception as error:  # noqa: BLE001 - the boundary to the training
        _log.warning("the policy loss is not recorded: %s", reason_of(error))
        return None
