"""The canonical knobs of a configuration, and changing them in flight."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.bundled.knobs import KEYS
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.vocabulary.knobs import Setting, check_change


def knobs_of(config: TrainConfig) -> dict[str, Setting]:
    """The canonical knobs as this configuration sets them; those its loss lacks are left out."""
    settings: dict[str, Setting] = {}
    for knob, key in KEYS.items():
        name, _, field = key.partition(".")
        section = getattr(config, name)
        if field in type(section).model_fields:
            settings[knob] = getattr(section, field)
    return settings


def apply_change(config: TrainConfig, changes: Mapping[str, Setting]) -> TrainConfig:
    """The configuration with some knobs set anew, as a live run may take it.

    Raises:
        ConfigError: if a knob is unknown, cannot change in flight, is out of bounds or contradicts
            another setting.
    """
    settings: dict[str, dict[str, Setting]] = {}
    for knob, setting in changes.items():
        checked = check_change(knob, setting)
        section, _, field = KEYS[knob].partition(".")
        settings.setdefault(section, {})[field] = checked
    return load_config(config.model_dump(), settings)
