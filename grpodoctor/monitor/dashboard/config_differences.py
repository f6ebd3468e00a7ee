"""The settings in which two or more runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpodoctor.monitor.dashboard.observed_run import RunView
from grpodoctor.monitor.outgoing.public_config import public_config

NOT_SET = "-"


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """One setting with its value in each run."""

    name: str
    values: tuple[str, ...]
    """In the order of the runs; `-` where the run has no such setting."""


def config_differences(views: Sequence[RunView]) -> tuple[ConfigDifference, ...]:
    """The settings that are not equal in all runs: knobs first, then the keys of the config."""
    knobs = _differences([dict(view.manifest.knobs) for view in views])
    configs = _differences([public_config(view.manifest.config) for view in views])
    facts = _differences([_facts(view) for view in views])
    return (*facts, *knobs, *configs)


def run_settings(view: RunView) -> dict[str, str]:
    """All settings of a run: what it is, its knobs as they are now, and its config."""
    known = {**_facts(view), **view.knobs, **public_config(view.manifest.config)}
    return {name: str(value) for name, value in known.items()}


def _facts(view: RunView) -> dict[str, object]:
    manifest = view.manifest
    versions = {f"version of {name}": version for name, version in manifest.versions.items()}
    facts: dict[str, object] = {
        "framework": manifest.framework,
        "model": manifest.model,
        "seed": manifest.seed,
        "prompt template": manifest.template_hash,
        "sampling settings": manifest.sampler_hash,
        **versions,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def _differences(settings: Sequence[Mapping[str, object]]) -> list[ConfigDifference]:
    names = sorted({name for each in settings for name in each})
    rows = [ConfigDifference(name, tuple(_text(each, name) for each in settings)) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _text(settings: Mapping[str, object], name: str) -> str:
    return str(settings[name]) if name in settings else NOT_SET
