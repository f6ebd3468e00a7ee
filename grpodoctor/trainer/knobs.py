"""The canonical knobs of a configuration, and changing them in flight."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from grpodoctor.remedies.spelling.bundled import KEYS
from grpodoctor.trainer.config import TrainConfig, load_config
from grpodoctor.vocabulary.knobs import Setting, check_change


def knobs_of(config: TrainConfig) -> dict[str, Setting]:
    """The canonical knobs as this configuration sets them."""
    return {
        knob: reduce(getattr, key.split("."), config)  # type: ignore[arg-type]  # sections, then a setting
        for knob, key in KEYS.items()
    }


def apply_change(config: TrainConfig, changes: Mapping[str, object]) -> TrainConfig:
    """The configuration with some knobs set anew, as a live run may take it.

    Raises:
        ConfigError: if a knob is unknown, cannot change in flight, is out of bounds or contradicts
            another setting.
    """
    settings: dict[str, Any] = {}
    for knob, setting in changes.items():
        section, _, field = KEYS[knob].partition(".") if knob in KEYS else ("", "", "")
        settings.setdefault(section, {})[field] = check_change(knob, setting)
    return load_config(config.model_dump(), settings)
