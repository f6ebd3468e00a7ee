"""Presets: published recipes as one small TOML file each, applied over the defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from grpodoctor.support.suggestions import as_spelled, check_name


@dataclass(frozen=True, slots=True)
class Preset:
    """A published recipe as settings."""

    name: str
    summary: str
    settings: Mapping[str, Any]
    """Nested by section; a layer for `load_config`."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """The values of the paper that the built-in trainer replaces by its own, in the same form."""

    def assignments(self) -> list[str]:
        """Its settings, each as `section.key=value`."""
        return list(_flatten(self.settings))


class Adapted(NamedTuple):
    """A preset's settings for a run of a given length."""

    settings: Mapping[str, Any]
    notes: list[str]
    """What was changed, one line each."""


_LONGEST_PRETRAINING = 5
"""A preset pretrains its critic for at most a fifth of the run; the policy needs the rest."""


def adapted_to_steps(preset: Preset, steps: int) -> Adapted:
    """The preset's settings, with less pretraining of the critic if the run is too short for it."""
    critic = preset.settings.get("critic", {})
    wanted, most = critic.get("pretrain_steps", 0), steps // _LONGEST_PRETRAINING
    if wanted <= most:
        return Adapted(preset.settings, [])
    shorter = {**preset.settings, "critic": {**critic, "pretrain_steps": most}}
    note = (
        f"{preset.name} pretrains the critic for {wanted} steps, too many for a run of {steps}: "
        f"critic.pretrain_steps={most}"
    )
    return Adapted(shorter, [note])


def preset_names() -> tuple[str, ...]:
    """All presets, sorted."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.toml")))


def preset_of(name: str) -> Preset:
    """The preset of that name.

    Raises:
        ConfigError: if the name is unknown; the message suggests the nearest names.
    """
    name = as_spelled(name, preset_names())
    check_name(name, preset_names(), "preset")
    file = Path(__file__).with_name(f"{name}.toml")
    settings = tomllib.loads(file.read_text(encoding="utf-8"))
    summary, published = settings.pop("summary"), settings.pop("published", {})
    return Preset(name, summary, settings, published)


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={str(value).lower() if isinstance(value, bool) else value}"
