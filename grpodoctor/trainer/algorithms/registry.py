"""Algorithm variants, found by file name: `losses/token_level/ppo_clip.py` holds `ppo_clip`.

A variant is imported when it is asked for. An unknown name raises ConfigError, with the nearest
names.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from grpodoctor.trainer.algorithms.names import Family, check_variant, variant_modules

if TYPE_CHECKING:
    from grpodoctor.trainer.algorithms.advantages.base import Advantage
    from grpodoctor.trainer.algorithms.corrections.base import Correction
    from grpodoctor.trainer.algorithms.kl.base import KlEstimator
    from grpodoctor.trainer.algorithms.losses.base import Loss, TokenSelector
    from grpodoctor.trainer.algorithms.losses.settings import LossConfig
    from grpodoctor.trainer.algorithms.replays.base import Replay
    from grpodoctor.trainer.algorithms.reweightings.base import Reweighting


def _module(family: Family, name: str) -> Any:
    check_variant(family, name)
    return import_module(variant_modules(family)[name])


def _function(family: Family, name: str) -> Any:
    return getattr(_module(family, name), name)


def loss_of(name: str) -> Loss:
    """The loss of that name."""
    loss: Loss = _function("losses", name)
    return loss


@lru_cache
def loss_settings_of(name: str) -> type[LossConfig]:
    """The settings class in the file of that loss; does not import torch."""
    from grpodoctor.trainer.algorithms.losses.settings import LossConfig

    module = _module("losses", name)
    (settings,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, LossConfig)
        and value.__module__ == module.__name__
    )
    return settings


def token_selector_of(name: str) -> TokenSelector | None:
    """The function `select_tokens` of the loss of that name; None if it has none."""
    select_tokens: TokenSelector | None = getattr(_module("losses", name), "select_tokens", None)
    return select_tokens


def advantage_of(name: str) -> Advantage:
    """The advantage of that name."""
    advantage: Advantage = _function("advantages", name)
    return advantage


def remembers_prompts(name: str) -> bool:
    """Whether the advantage of that name needs a prompt's earlier rewards."""
    return hasattr(_module("advantages", name), "REMEMBERS_PROMPTS")


def correction_of(name: str) -> Correction:
    """The correction of that name."""
    correction: Correction = _function("corrections", name)
    return correction


def kl_of(name: str) -> KlEstimator:
    """The KL estimator of that name."""
    estimator: KlEstimator = _function("kl", name)
    return estimator


def reweighting_of(name: str) -> Reweighting:
    """The reweighting of that name."""
    reweighting: Reweighting = _function("reweightings", name)
    return reweighting


def replay_of(name: str) -> Replay:
    """The routing replay of that name."""
    replay: Replay = _function("replays", name)
    return replay
