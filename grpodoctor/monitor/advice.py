"""Remedies resolved for a run: the change under its current settings, in its framework's keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpodoctor.frameworks.knob_mapping import SettingLine
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.remedies.base import Remedy
from grpodoctor.remedies.catalogue import remedy_of
from grpodoctor.remedies.plain_grpo import PLAIN_GRPO
from grpodoctor.vocabulary.knobs import Setting


@dataclass(frozen=True, slots=True)
class Advice:
    """A remedy for a finding, with the change that it makes to the run's settings."""

    id: str
    title: str
    applicability: str
    change: Mapping[str, Setting]
    """Knob to new setting; empty if a person has to act, or if there is nothing to change."""
    spelling: tuple[SettingLine, ...]
    """The change in the framework's own keys, or instructions for a person."""
    config_missing: bool = False
    """Whether there is no change only because the run's settings are unknown."""
    if_not_set: tuple[SettingLine, ...] = ()
    """The settings to make if they are not made already; only if `config_missing`, and only if
    they do not depend on the unknown settings."""

    def to_json(self) -> dict[str, Any]:
        """One entry of a finding's `remedies`."""
        return {
            "id": self.id,
            "applicability": self.applicability,
            "change": dict(self.change),
            "spelling": [
                {"key": setting.key, "value": setting.value, "note": setting.note}
                for setting in self.spelling
            ],
        }


def advice_for(remedy_id: str, knobs: Mapping[str, Setting], framework: str) -> Advice:
    """A remedy resolved for a run.

    Args:
        remedy_id: id of the remedy.
        knobs: the run's current settings, as far as they are known.
        framework: framework whose keys the change is written in.
    """
    remedy = remedy_of(remedy_id)
    change = remedy.change(knobs)
    usual = {} if change or remedy.how else remedy.change({**PLAIN_GRPO, **knobs})
    return Advice(
        id=remedy.id,
        title=remedy.title,
        applicability=remedy.applicability,
        change=change,
        spelling=_spelling(remedy, change, knobs, framework),
        config_missing=bool(usual),
        if_not_set=tuple(
            framework_settings(_if_independent(remedy, usual, knobs), framework, knobs)
        ),
    )


def _if_independent(
    remedy: Remedy, usual: dict[str, Setting], knobs: Mapping[str, Setting]
) -> dict[str, Setting]:
    """The change, if it is the same for other values of the unknown settings; else nothing."""
    other = {
        knob: value * 2 if isinstance(value, int | float) and value is not False else value
        for knob, value in PLAIN_GRPO.items()
    }
    return usual if remedy.change({**other, **knobs}) == usual else {}


def _spelling(
    remedy: Remedy, change: Mapping[str, Setting], knobs: Mapping[str, Setting], framework: str
) -> tuple[SettingLine, ...]:
    if not change and remedy.how:
        settings = framework_settings(remedy.restart_with, framework)
        return (SettingLine("", "", remedy.how), *(setting for setting in settings if setting.key))
    return tuple(framework_settings(change, framework, knobs))
