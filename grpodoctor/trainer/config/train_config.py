"""The bundled trainer's configuration: one section per concern, every field bounded and documented.

A TOML file has the same sections; `--set section.key=value` changes one field.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson
from pydantic import ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from grpodoctor.errors import ConfigError
from grpodoctor.support.files.regular_files import read_regular
from grpodoctor.support.toml_text import parse_toml
from grpodoctor.support.validation_reasons import plain_reason
from grpodoctor.trainer.algorithms.losses.settings import LossConfig
from grpodoctor.trainer.config.key_names import (
    RENAMED_SECTIONS,
    rename_sections,
    suggested_keys,
)
from grpodoctor.trainer.config.loss import kept_under_another_loss, loss_config, loss_fields
from grpodoctor.trainer.config.presets import Preset, adapted_to_steps
from grpodoctor.trainer.config.sections import AllSections, RewardTerm
from grpodoctor.trainer.config.unusual_settings import warnings
from grpodoctor.trainer.config.validation import conflicts
from grpodoctor.trainer.config_section import ConfigSection


class TrainConfig(AllSections):
    """The whole configuration, validated."""

    @model_validator(mode="before")
    @classmethod
    def _rename_former_sections(cls, settings: object) -> object:
        return rename_sections(settings) if isinstance(settings, Mapping) else settings

    @field_validator("loss", mode="before")
    @classmethod
    def _by_its_kind(cls, loss: object) -> object:
        return loss_config(loss) if isinstance(loss, Mapping) else loss

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for conflict in conflicts(self):
            raise ConfigError(conflict.what, where=conflict.keys, remedy=conflict.remedy)
        return self

    def warnings(self) -> list[str]:
        """Settings that are allowed but rarely intended, one line each."""
        return warnings(self)


def load_config(
    *layers: Mapping[str, Any], file: Path | None = None, assignments: Iterable[str] = ()
) -> TrainConfig:
    """Build a configuration: defaults, then `layers` (a preset), then the file, then assignments.

    A former section name in the file or in an assignment is accepted, with a note on stderr.

    Args:
        layers: nested dictionaries; later ones win.
        file: TOML file with the sections of `TrainConfig`.
        assignments: texts `section.key=value`, the value in TOML syntax or as bare text.

    Raises:
        ConfigError: if the file is not TOML, a key is unknown, a value is out of bounds or two
            settings conflict.
    """
    return _validated(layers, _user_settings(file, assignments))


class PresetConfig(NamedTuple):
    """A preset's configuration, with the user's settings on top."""

    config: TrainConfig
    notes: list[str]
    """What was adapted to the number of steps, one line each."""


def load_preset(
    preset: Preset, *, file: Path | None = None, assignments: Iterable[str] = ()
) -> PresetConfig:
    """Build a configuration from a preset, adapted to the number of steps that the user requests.

    Raises:
        ConfigError: as `load_config`.
    """
    user = _user_settings(file, assignments)
    steps = _overlay(user.from_file, user.assigned).get("steps")
    default = TrainConfig.model_fields["steps"].default
    settings, notes = adapted_to_steps(preset, steps if isinstance(steps, int) else default)
    config = _validated([settings], user)
    if "pretrain_steps" in user.section("critic"):
        notes = []
    return PresetConfig(config, notes)


class _UserSettings(NamedTuple):
    file: Path | None
    from_file: dict[str, Any]
    assigned: dict[str, Any]

    def section(self, name: str) -> Mapping[str, Any]:
        """The user's settings of a section."""
        section = _overlay(self.from_file, self.assigned).get(name)
        return section if isinstance(section, Mapping) else {}


def _user_settings(file: Path | None, assignments: Iterable[str]) -> _UserSettings:
    from_file = {} if file is None else _renamed_by_user(_read_toml(file))
    assigned: dict[str, Any] = {}
    for text in assignments:
        assigned = _overlay(assigned, _parse_assignment(text))
    return _UserSettings(file, from_file, _renamed_by_user(assigned))


def _validated(layers: Iterable[Mapping[str, Any]], user: _UserSettings) -> TrainConfig:
    merged: dict[str, Any] = {}
    for layer in (*map(rename_sections, layers), user.from_file, user.assigned):
        merged = _overlay(merged, layer)
    try:
        config = TrainConfig.model_validate(merged)
        orjson.dumps(config.model_dump(mode="json"))  # as a checkpoint will save it
    except ValidationError as error:
        raise _explain(error.errors()[0], user) from None
    except orjson.JSONEncodeError as error:
        raise ConfigError(
            f"the settings cannot be saved: {error}", remedy="use UTF-8 text and 64-bit numbers"
        ) from None
    return config


def check_names(assignments: Iterable[str]) -> None:
    """Check the setting names of assignments, without their values.

    Raises:
        ConfigError: if a name is unknown.
    """
    known = set(known_keys())
    for text in assignments:
        key = text.partition("=")[0].strip()
        section, dot, field = key.partition(".")
        name = f"{RENAMED_SECTIONS.get(section, section)}{dot}{field}"
        parts = name.split(".")
        if not any(".".join(parts[:count]) in known for count in range(1, len(parts) + 1)):
            raise _unknown(key)


def _unknown(key: str, where: str = "") -> ConfigError:
    known, section = known_keys(), key.rpartition(".")[0]
    if any(name.startswith(f"{key}.") for name in known):
        return _is_section(key, where)
    if section.startswith("task.rewards."):  # its sections have the user's own names
        known += [f"{section}.{field}" for field in RewardTerm.model_fields]
    suggested = suggested_keys(key, known)
    remedy = f"did you mean {' or '.join(suggested)}?" if suggested else _sections()
    return ConfigError(f"unknown setting {key[:80]}", where=where, remedy=remedy)


def _is_section(key: str, where: str) -> ConfigError:
    example = next(name for name in known_keys() if name.startswith(f"{key}."))
    return ConfigError(
        f"{key} is a section, not a setting", where=where, remedy=f"set {example} or another"
    )


def _renamed_by_user(settings: Mapping[str, Any]) -> dict[str, Any]:
    for former in RENAMED_SECTIONS.keys() & settings.keys():
        name = RENAMED_SECTIONS[former]
        print(f"note: the section {former} is now spelled {name}", file=sys.stderr)
    return rename_sections(settings)


def _overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            kept = kept_under_another_loss(below, value) if key == "loss" else below
            result[key] = _overlay(kept, value)
        else:
            result[key] = value
    return result


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_regular(file))
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise ConfigError(
            f"the config file cannot be read: {reason}", where=str(file), remedy="check --config"
        ) from None
    except ValueError as error:
        raise ConfigError(
            f"the config file is not valid TOML: {error}",
            where=str(file),
            remedy="docs/training.md shows one",
        ) from None


def _parse_assignment(text: str) -> dict[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f"--set {text[:60]!r} has no value", remedy="write --set section.key=value"
        )
    nested: Any = _parse_value(value.strip())
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    result: dict[str, Any] = nested
    return result


def _parse_value(text: str) -> Any:
    try:
        parsed = parse_toml(f"value = {text}")
    except ValueError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _explain(problem: ErrorDetails, user: _UserSettings) -> ConfigError:
    """Pydantic's error as ours, with the file's name if the setting comes from the file."""
    path = problem["loc"]
    key = ".".join(map(str, path))
    in_file = _holds(user.from_file, path) and not _holds(user.assigned, path)
    where = str(user.file) if in_file else ""
    if problem["type"] == "extra_forbidden":
        return _unknown(_first_leaf(key, problem["input"]), where)
    if problem["type"] == "model_type":
        return _is_section(key, where)
    reason = plain_reason(problem["msg"])
    return ConfigError(f"{key} cannot be {str(problem['input'])[:60]!r}: {reason}", where=where)


def _first_leaf(key: str, value: object) -> str:
    """The first full key below an unknown section."""
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        key = f"{key}.{name}"
    return key


def _holds(layer: Any, path: Iterable[int | str]) -> bool:
    for part in path:
        if not isinstance(layer, Mapping) or part not in layer:
            return False
        layer = layer[part]
    return True


def _sections() -> str:
    sections = sorted({key.partition(".")[0] for key in known_keys() if "." in key})
    return f"sections: {', '.join(sections)}"


def known_keys() -> list[str]:
    """Every dotted key of the configuration."""
    keys: list[str] = []
    for name, field in TrainConfig.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, ConfigSection):
            fields = loss_fields() if section is LossConfig else section.model_fields
            keys.extend(f"{name}.{key}" for key in fields)
        else:
            keys.append(name)
    return keys
