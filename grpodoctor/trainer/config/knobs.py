"""The canonical knobs of a configuration, and changing them during a run."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.bundled.knobs import KEYS
from grpodoctor.trainer.config.train_config import TrainConfig, load_config
from grpodoctor.vocabulary.knobs import Setting, check_change


def knobs_of(config: TrainConfig) -> dict[str, Setting]:
    """The canonical knobs of a configuration, without those that its loss does not have."""
    settings: dict[str, Setting] = {}
    for knob, key in KEYS.items():
        name, _, field = key.partition(".")
        section = getattr(config, name)
        if field in type(section).model_fields:
            settings[knob] = getattr(section, field)
    return settings


def apply_change(config: TrainConfig, changes: Mapping[str, Setting]) -> TrainConfig:
    """The configuration with some knobs changed.

    Raises:
        ConfigError: if a knob is unknown, cannot change during a run, is out of bounds or conflicts
            with another setting.
    """
    settings: dict[str, dict[str, Setting]] = {}
    for knob, setting in changes.items():
        checked = check_change(knob, setting)
        section, _, field = KEYS[knob].partition(".")
        settings.setdefault(section, {})[field] = checked
    return load_config(config.model_dump(), settings)
