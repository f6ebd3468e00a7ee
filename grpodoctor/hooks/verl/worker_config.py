"""What the actor's configuration of verl says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

_PLAIN = (str, int, float, bool)


def clip_setting(config: Any, side: Literal["low", "high"]) -> float | None:
    """A bound of the clip, as verl's losses read it; None if the config has none."""
    own = getattr(config, f"clip_ratio_{side}", None)
    return own if own is not None else getattr(config, "clip_ratio", None)


def model_of(config: Any) -> str:
    """The path of the model; empty if the config has none."""
    return str(getattr(getattr(config, "model_config", None), "path", "") or "")


def plain_config(config: Any, mode: str) -> dict[str, Any]:
    """The actor's settings that are plain values, under verl's keys.

    Args:
        config: the actor's configuration.
        mode: verl's name of the loss that is observed.
    """
    actor: dict[str, Any] = _plain_values(config)
    actor["policy_loss"] = {
        **_plain_values(getattr(config, "policy_loss", None)),
        "loss_mode": mode,
    }
    return {"actor_rollout_ref": {"actor": actor}}


def _plain_values(config: Any) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        return {}
    return {str(name): config.get(name) for name in config if isinstance(config.get(name), _PLAIN)}
