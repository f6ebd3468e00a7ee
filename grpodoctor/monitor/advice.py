"""Remedies resolved for a run: what to set, in the keys of its framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.frameworks.registry import configurable_frameworks, find_framework
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.remedies.base import Readings, Remedy
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.remedies.plain_grpo import PLAIN_GRPO
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.vocabulary.knobs import Setting


@dataclass(frozen=True, slots=True)
class Advice:
    """A remedy for a finding, with the change that it makes to the run's settings.

    If the mechanism applies, at least one of `spelling`, `if_not_set`, `already_set` and
    `config_missing` says what to do.
    """

    id: str
    title: str
    applicability: str
    change: Mapping[str, Setting]
    """Knob to new setting; empty if a person has to act, or if there is nothing to change."""
    spelling: tuple[SettingLine, ...]
    """Instructions for a person, then the change in the framework's own keys."""
    config_missing: bool = False
    """Whether there is no change only because the run's settings are unknown."""
    if_not_set: tuple[SettingLine, ...] = ()
    """The settings to make if they are not made already, where the run's settings are unknown."""
    already_set: tuple[SettingLine, ...] = ()
    """The settings that would be made, and that the run has already."""
    obstacle: str = ""
    """Why the remedy cannot help this run; it is then not offered."""
    alternatives: tuple[str, ...] = ()
    """Ids of remedies with the same effect."""

    def to_json(self) -> dict[str, Any]:
        """One entry of a finding's `remedies`."""
        return {
            "id": self.id,
            "applicability": self.applicability,
            "change": dict(self.change),
            "spelling": [_line_to_json(line) for line in self.spelling],
            "if_not_set": [_line_to_json(line) for line in self.if_not_set],
            "already_set": [_line_to_json(line) for line in self.already_set],
            "obstacle": self.obstacle,
            "alternatives": list(self.alternatives),
        }


def _line_to_json(line: SettingLine) -> dict[str, str]:
    return {"key": line.key, "value": line.value, "note": line.note}


def advice_for(
    remedy_id: str,
    knobs: Mapping[str, Setting],
    framework: str,
    readings: Readings | None = None,
) -> Advice:
    """A remedy resolved for a run.

    Args:
        remedy_id: id of the remedy.
        knobs: the run's current settings, as far as they are known.
        framework: framework whose keys the change is written in.
        readings: the run's recent readings, from which values are computed where possible.
    """
    remedy, readings = remedy_of(remedy_id), readings or {}
    if obstacle := remedy.obstacle(knobs, readings):
        return _advice(remedy, obstacle=obstacle)
    change = remedy.tuned(remedy.change(knobs), readings)
    if change:
        lines = framework_settings(change, framework, knobs)
        return _advice(remedy, change, (*lines, *_restart_lines(remedy, framework)))
    unknown = _change_if_unknown(remedy, knobs, readings)
    return _advice(
        remedy,
        spelling=_instructions(remedy, framework),
        config_missing=not remedy.how and bool(_usual_change(remedy, knobs)),
        if_not_set=tuple(framework_settings(unknown, framework, knobs)),
        already_set=() if unknown else _already_set(remedy, knobs, framework),
    )


def _advice(
    remedy: Remedy,
    change: Mapping[str, Setting] | None = None,
    spelling: tuple[SettingLine, ...] = (),
    *,
    config_missing: bool = False,
    if_not_set: tuple[SettingLine, ...] = (),
    already_set: tuple[SettingLine, ...] = (),
    obstacle: str = "",
) -> Advice:
    return Advice(
        id=remedy.id,
        title=remedy.title,
        applicability=remedy.applicability,
        change=change or {},
        spelling=spelling,
        config_missing=config_missing,
        if_not_set=if_not_set,
        already_set=already_set,
        obstacle=obstacle,
        alternatives=remedy.alternatives,
    )


def _instructions(remedy: Remedy, framework: str) -> tuple[SettingLine, ...]:
    how = (SettingLine("", "", remedy.how),) if remedy.how else ()
    return (*how, *_restart_lines(remedy, framework))


def _restart_lines(remedy: Remedy, framework: str) -> tuple[SettingLine, ...]:
    """The settings beyond the knobs, or why the framework lacks one of them."""
    lines = framework_settings(remedy.restart_with, framework)
    if any(line.key for line in lines):
        return tuple(line for line in lines if line.key)
    return tuple(lines) if find_framework(framework, configurable_frameworks()) else ()


def _usual_change(remedy: Remedy, knobs: Mapping[str, Setting]) -> dict[str, Setting]:
    """The change of a run with the usual values of the settings that are unknown."""
    return remedy.change({**PLAIN_GRPO, **knobs})


def _change_if_unknown(
    remedy: Remedy, knobs: Mapping[str, Setting], readings: Readings
) -> dict[str, Setting]:
    """What to set if it is not set already; empty if all settings that matter are known."""
    usual = _usual_change(remedy, knobs)
    unknown = usual.keys() - knobs.keys()
    if not unknown:
        return {}
    change = usual | {name: remedy.when_unknown.get(name, usual[name]) for name in unknown}
    change = remedy.tuned(change, readings)
    relative = unknown - remedy.when_unknown.keys() - _independent(remedy, usual, knobs)
    return {name: value for name, value in change.items() if name not in relative}


def _independent(
    remedy: Remedy, usual: Mapping[str, Setting], knobs: Mapping[str, Setting]
) -> set[str]:
    """The knobs that the remedy sets to the same value whatever the unknown settings are."""
    changes = [remedy.change({**_scaled(factor), **knobs}) for factor in (0.5, 2)]
    return {
        name
        for name, value in usual.items()
        if all(change.get(name, value) == value for change in changes)
    }


def _scaled(factor: float) -> dict[str, Setting]:
    """The usual settings with other numbers, to see whether a change depends on them."""
    return {
        knob: type(value)(value * factor) if isinstance(value, int | float) else value
        for knob, value in PLAIN_GRPO.items()
    }


def _already_set(
    remedy: Remedy, knobs: Mapping[str, Setting], framework: str
) -> tuple[SettingLine, ...]:
    """The settings in force that the remedy would otherwise make."""
    in_force = {name: knobs[name] for name in remedy.change(PLAIN_GRPO) if name in knobs}
    return tuple(framework_settings(in_force, framework, knobs))


@lru_cache(maxsize=1)
def _callers() -> Mapping[str, tuple[str, ...]]:
    """Codes of the rules that call for each remedy, directly or as an alternative."""
    callers: dict[str, set[str]] = {remedy.id: set() for remedy in all_remedies()}
    for rule in all_rules():
        for remedy_id in rule.remedies:
            for each in (remedy_id, *remedy_of(remedy_id).alternatives):
                callers[each].add(rule.code)
    return {remedy_id: tuple(sorted(codes)) for remedy_id, codes in callers.items()}


def called_for_by(remedy_id: str) -> tuple[str, ...]:
    """Codes of the rules that call for a remedy, directly or as an alternative."""
    return _callers()[remedy_of(remedy_id).id]


def overlapping(remedy_id: str) -> tuple[str, ...]:
    """Ids of the remedies that change the same thing and are never combined with this one."""
    slots = set(remedy_of(remedy_id).slots)
    return tuple(
        other.id for other in all_remedies() if other.id != remedy_id and slots & set(other.slots)
    )
