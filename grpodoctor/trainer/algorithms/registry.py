"""Variants found by their files: `losses/ppo_clip.py` holds the function `ppo_clip`.

The names come from the folder alone, so that a configuration is checked without importing torch.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from grpodoctor.errors import ConfigError

if TYPE_CHECKING:
    from grpodoctor.trainer.algorithms.advantages.base import Advantage
    from grpodoctor.trainer.algorithms.corrections.base import Correction
    from grpodoctor.trainer.algorithms.kl.base import KlEstimator
    from grpodoctor.trainer.algorithms.losses.base import Choice, Loss
    from grpodoctor.trainer.algorithms.replays.base import Replay
    from grpodoctor.trainer.algorithms.reweightings.base import Reweighting

Family = Literal["advantages", "corrections", "kl", "losses", "replays", "reweightings"]

_SINGULAR: dict[Family, str] = {
    "advantages": "advantage",
    "corrections": "correction",
    "kl": "KL estimator",
    "losses": "loss",
    "replays": "routing replay",
    "reweightings": "reweighting",
}
_SHARED = "base"
_HERE = Path(__file__).parent


@lru_cache
def names(family: Family) -> tuple[str, ...]:
    """The variants of a family, sorted."""
    modules = pkgutil.iter_modules([str(_HERE / family)])
    return tuple(sorted(module.name for module in modules if module.name != _SHARED))


def loss_of(name: str) -> Loss:
    """The loss of that name.

    Raises:
        ConfigError: if there is none.
    """
    return _variant("losses", name)


def choice_of(name: str) -> Choice | None:
    """How the loss of that name chooses among a whole step's tokens; None if it does not.

    Raises:
        ConfigError: if there is no such loss.
    """
    check_variant("losses", name)
    module = import_module(f"grpodoctor.trainer.algorithms.losses.{name}")
    choose: Choice | None = getattr(module, "choose", None)
    return choose


def advantage_of(name: str) -> Advantage:
    """The advantage of that name.

    Raises:
        ConfigError: if there is none.
    """
    return _variant("advantages", name)


def correction_of(name: str) -> Correction:
    """The correction of that name.

    Raises:
        ConfigError: if there is none.
    """
    return _variant("corrections", name)


def kl_of(name: str) -> KlEstimator:
    """The KL estimator of that name.

    Raises:
        ConfigError: if there is none.
    """
    return _variant("kl", name)


def reweighting_of(name: str) -> Reweighting:
    """The reweighting of that name.

    Raises:
        ConfigError: if there is none.
    """
    return _variant("reweightings", name)


def remembers_prompts(name: str) -> bool:
    """Whether the advantage of that name wants the earlier rewards of a prompt.

    Raises:
        ConfigError: if there is no such advantage.
    """
    check_variant("advantages", name)
    return hasattr(
        import_module(f"grpodoctor.trainer.algorithms.advantages.{name}"), "REMEMBERS_PROMPTS"
    )


def replay_of(name: str) -> Replay:
    """The routing replay of that name.

    Raises:
        ConfigError: if there is none.
    """
    return _variant("replays", name)


def check_variant(family: Family, name: str) -> None:
    """Check that a family has that variant.

    Raises:
        ConfigError: if it has not; the error names the nearest.
    """
    check_name(name, names(family), _SINGULAR[family])


def _variant(family: Family, name: str) -> Callable[..., Any]:
    check_variant(family, name)
    variant: Callable[..., Any] = getattr(
        import_module(f"grpodoctor.trainer.algorithms.{family}.{name}"), name
    )
    return variant


def check_name(name: str, known: Iterable[str], what: str) -> None:
    """Check that a name is known.

    Raises:
        ConfigError: if it is not; the error names the nearest.
    """
    known = tuple(known)
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}"
    raise ConfigError(f"there is no {what} {name[:60]!r}", remedy=remedy)
