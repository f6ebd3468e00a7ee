"""The settings in the configuration of verl's actor."""

from __future__ import annotations

from typing import Any, Literal

from grpodoctor.hooks.plain_config import plain_config


def clip_setting(config: Any, side: Literal["low", "high"]) -> float | None:
    """A bound of the clip, as verl's losses read it; None if the config has none."""
    own = getattr(config, f"clip_ratio_{side}", None)
    return own if own is not None else getattr(config, "clip_ratio", None)


def model_of(config: Any) -> str:
    """The path of the model; empty if the config has none."""
    return str(getattr(getattr(config, "model_config", None), "path", "") or "")


def settings_of(config: Any, mode: str) -> dict[str, Any]:
    """The actor's settings that are plain values, under verl's keys.

    Args:
        config: the actor's configuration.
        mode: verl's name of the loss that is observed.
    """
    actor = plain_config(config)
    actor["policy_loss"] = {**actor.get("policy_loss", {}), "loss_mode": mode}
    return {"actor_rollout_ref": {"actor": actor}}
