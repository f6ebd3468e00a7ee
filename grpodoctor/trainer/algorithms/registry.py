"""Algorithm variants, found by file name: `losses/token_level/ppo_clip.py` holds `ppo_clip`.

A variant is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from grpodoctor.trainer.algorithms.names import Family, check_variant, variant_modules

if TYPE_CHECKING:
    from grpodoctor.trainer.algorithms.advantages.base import Advantage
    from grpodoctor.trainer.algorithms.corrections.base import Correction
    from grpodoctor.trainer.algorithms.kl.base import KlEstimator
    from grpodoctor.trainer.algorithms.losses.base import Choice, Loss
    from grpodoctor.trainer.algorithms.losses.settings import LossConfig
    from grpodoctor.trainer.algorithms.replays.base import Replay
    from grpodoctor.trainer.algorithms.reweightings.base import Reweighting


def _module(family: Family, name: str) -> Any:
    check_variant(family, name)
    return import_module(variant_modules(family)[name])


def _function(family: Family, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(_module(family, name), name)
    return function


def loss_of(name: str) -> Loss:
    """The loss of that name.

    Raises:
        ConfigError: if the name is unknown.
    """
    return _function("losses", name)


@lru_cache
def loss_settings_of(name: str) -> type[LossConfig]:
    """The settings class in the file of that loss; does not import torch.

    Raises:
        ConfigError: if the name is unknown.
    """
    from grpodoctor.trainer.algorithms.losses.settings import LossConfig

    (settings,) = (
        value
        for value in vars(_module("losses", name)).values()
        if isinstance(value, type) and issubclass(value, LossConfig) and value is not LossConfig
    )
    return settings


def choice_of(name: str) -> Choice | None:
    """The function `choose` of the loss of that name; None if it has none.

    Raises:
        ConfigError: if the name is unknown.
    """
    choose: Choice | None = getattr(_module("losses", name), "choose", None)
    return choose


def advantage_of(name: str) -> Advantage:
    """The advantage of that name.

    Raises:
        ConfigError: if the name is unknown.
    """
    return _function("advantages", name)


def remembers_prompts(name: str) -> bool:
    """Whether the advantage of that name needs a prompt's earlier rewards.

    Raises:
        ConfigError: if the name is unknown.
    """
    return hasattr(_module("advantages", name), "REMEMBERS_PROMPTS")


def correction_of(name: str) -> Correction:
    """The correction of that name.

    Raises:
        ConfigError: if the name is unknown.
    """
    return _function("corrections", name)


def kl_of(name: str) -> KlEstimator:
    """The KL estimator of that name.

    Raises:
        ConfigError: if the name is unknown.
    """
    return _function("kl", name)


def reweighting_of(name: str) -> Reweighting:
    """The reweighting of that name.

    Raises:
        ConfigError: if the name is unknown.
    """
    return _function("reweightings", name)


def replay_of(name: str) -> Replay:
    """The routing replay of that name.

    Raises:
        ConfigError: if the name is unknown.
    """
    return _function("replays", name)
