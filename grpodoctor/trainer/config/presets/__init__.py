"""Presets: one small TOML file each, layers over the default configuration."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpodoctor.trainer.algorithms.registry import check_name

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Preset:
    """A published recipe as settings."""

    name: str
    summary: str
    settings: Mapping[str, Any]
    """Nested by section, a layer for `load_config`."""

    def assignments(self) -> list[str]:
        """What it sets, each as `section.key=value`."""
        return list(_flatten(self.settings))


def preset_names() -> tuple[str, ...]:
    """All presets, sorted."""
    return tuple(sorted(path.stem for path in _HERE.glob("*.toml")))


def preset_of(name: str) -> Preset:
    """The preset of that name.

    Raises:
        ConfigError: if there is none; the error names the nearest.
    """
    check_name(name, preset_names(), "preset")
    settings = tomllib.loads((_HERE / f"{name}.toml").read_text(encoding="utf-8"))
    return Preset(name, settings.pop("summary"), settings)


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={str(value).lower() if isinstance(value, bool) else value}"
