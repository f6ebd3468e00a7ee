"""A loss for `trainer.loss.type = "custom"` that calls prime-rl's own and records its tokens.

prime-rl calls it once per training sample. The first call adds a monitor to prime-rl's list, which
on every rank receives the rows of the trainer and with them the number of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from grpodoctor.hooks.guard import Guard
from grpodoctor.hooks.prime_rl.loss_recorder import LossRecorder

_BUILT_IN = {"default": "DefaultLossConfig", "ipo": "IPOLossConfig"}


def loss(inputs: Any, *, loss: str = "default", run_dir: str | None = None, **settings: Any) -> Any:
    """What prime-rl's own loss returns.

    Args:
        inputs: prime-rl's `LossInputs`.
        loss: `default`, `ipo`, or the import path of another loss.
        run_dir: directory to record in.
        settings: settings of the loss, as in `trainer.loss`.
    """
    outputs = _own_loss(loss, tuple(sorted(settings.items())))(inputs)
    recorder = _recorder(loss, run_dir, tuple(sorted(settings.items())))
    if recorder is not None:
        recorder.observe(inputs, outputs)
    return outputs


@lru_cache(maxsize=1)
def _own_loss(name: str, settings: tuple[tuple[str, Any], ...]) -> Callable[[Any], Any]:
    """The function that prime-rl makes of a loss and its settings."""
    configs = import_module("prime_rl.configs.trainer")
    build: Callable[[Any], Callable[[Any], Any]] = import_module(
        "prime_rl.trainer.rl.loss"
    ).setup_rl_loss_fn
    if name in _BUILT_IN:
        return build(getattr(configs, _BUILT_IN[name])(**dict(settings)))
    return build(configs.CustomLossConfig(import_path=name, kwargs=dict(settings)))


@lru_cache(maxsize=1)
def _recorder(
    name: str, run_dir: str | None, settings: tuple[tuple[str, Any], ...]
) -> LossRecorder | None:
    """The recorder of this process; None if there is none."""
    return Guard().run("grpodoctor", LossRecorder, name, run_dir, dict(settings))
