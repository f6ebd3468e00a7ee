"""Remedies resolved for a run: what to set, in the keys of its framework."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from grpodoctor.frameworks.registry import configurable_frameworks, find_framework
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.frameworks.written_settings import SettingLine
from grpodoctor.monitor.vitals import format_reading
from grpodoctor.remedies.base import Readings, Remedy, assumed, number
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.remedies.plain_grpo import PLAIN_GRPO
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.vocabulary.knobs import KNOBS, LOGGED_KNOBS, Setting
from grpodoctor.vocabulary.plain_names import plain_name

_MAX_LENGTH, _TRUNCATED = "length/max", "length/truncated_rate"

_MODEL_NAME = re.compile(r"[\w./~@+-]{1,120}", re.ASCII)
"""A model's name or path that a shell takes as it is."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A remedy for a finding, with the change that it makes to the run's settings.

    If the mechanism applies, at least one of `spelling`, `if_not_set`, `already_set` and
    `config_missing` has a value.
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
    has_config: bool = False
    """Whether the run's config was found; it may lack settings all the same."""
    if_not_set: tuple[SettingLine, ...] = ()
    """The settings to make if they are not made already, where the run's settings are unknown."""
    already_set: tuple[SettingLine, ...] = ()
    """The settings that would be made, and that the run has already."""
    obstacle: str = ""
    """Why the remedy cannot help this run; it is then not offered."""
    condition: str = ""
    """What the remedy acts on: the measured value, or the condition if it is unknown. Empty for a
    remedy without a condition."""
    is_conditional: bool = False
    """Whether the condition is unknown."""
    has_instructions: bool = False
    """Whether a person can follow it without a setting of the framework."""
    command: str = ""
    """The command that makes the check or the change; capitals are to be filled in."""
    alternatives: tuple[str, ...] = ()
    """Ids of remedies with the same effect."""

    @property
    def settings(self) -> tuple[SettingLine, ...]:
        """The settings to make, without instructions."""
        return tuple(line for line in (*self.spelling, *self.if_not_set) if line.key)

    @property
    def is_doable(self) -> bool:
        """Whether it leaves something to do: it is not in force, and the framework has it."""
        return bool(self.settings or self.command or self.has_instructions)

    @property
    def is_in_force(self) -> bool:
        """Whether the run has its settings already, so that nothing is left to set."""
        return bool(self.already_set) and not self.settings

    @property
    def is_open(self) -> bool:
        """Whether a reader can act on it: it may help, and the run does not have it already."""
        if self.obstacle or self.is_in_force:
            return False
        return self.is_doable or self.config_missing or bool(self.spelling)

    @property
    def is_exact(self) -> bool:
        """Whether there are settings, and all of them have a value."""
        settings = self.settings
        return bool(settings) and not any("<" in line.value for line in settings)

    @property
    def conditional_title(self) -> str:
        """The title, with the condition if it is unknown."""
        return f"{self.title} {self.condition}" if self.is_conditional else self.title

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
            "condition": self.condition,
            "condition_met": None if self.is_conditional or not self.condition else True,
            "command": self.command,
            "alternatives": list(self.alternatives),
        }


@dataclass(frozen=True, slots=True)
class AdviceSource:
    """What remedies depend on in a run, at one moment."""

    knobs: Mapping[str, Setting]
    """The run's current settings, as far as they are known."""
    framework: str
    """The run's framework."""
    readings: Readings
    """Recent readings, from which values are computed where possible."""
    model: str = ""
    has_config: bool = False
    """Whether the run's config was found."""

    def advice(self, remedies: Iterable[str], framework: str | None = None) -> dict[str, Advice]:
        """Remedies by id, resolved for the run.

        Args:
            remedies: ids of the remedies.
            framework: framework whose keys they show; the run's own if None.
        """
        framework = framework or self.framework
        return {
            remedy: advice_for(
                remedy,
                self.knobs,
                framework,
                self.readings,
                self.model,
                has_config=self.has_config,
            )
            for remedy in set(remedies)
        }


def _line_to_json(line: SettingLine) -> dict[str, str]:
    return {"key": line.key, "value": line.value, "note": line.note}


def with_alternatives(remedies: Iterable[str]) -> set[str]:
    """The ids of remedies and of their alternatives."""
    ids = set(remedies)
    return ids.union(*(remedy_of(remedy).alternatives for remedy in ids))


def usable(remedies: Sequence[str], advice: Mapping[str, Advice]) -> list[Advice]:
    """The remedies of a finding whose mechanism applies to the run, best first.

    Remedies that are in force or that the framework lacks come last. If nothing else is left, the
    alternatives precede them, first those with settings of the framework: alternatives have the
    same effect, so one that can be pasted is better. The rule's own order is kept, since it may
    begin with the cause. All remedies if no mechanism applies.

    Args:
        remedies: ids of the finding's remedies.
        advice: remedies by id, resolved for the run.
    """
    own = [advice[remedy] for remedy in remedies if remedy in advice]
    applicable = sorted(
        (each for each in own if not each.obstacle), key=lambda each: not each.is_doable
    )
    others = dict.fromkeys(each for one in own for each in one.alternatives if each in advice)
    if not any(each.is_doable for each in applicable):
        doable = sorted(
            (advice[each] for each in others if advice[each].is_doable),
            key=lambda each: not each.settings,
        )
        applicable = [each for each in doable if each not in own and not each.obstacle] + applicable
    return applicable or own


def advice_for(
    remedy_id: str,
    knobs: Mapping[str, Setting],
    framework: str,
    readings: Readings | None = None,
    model: str = "",
    *,
    has_config: bool = False,
) -> Advice:
    """A remedy resolved for a run.

    Args:
        remedy_id: id of the remedy.
        knobs: the run's current settings, as far as they are known.
        framework: framework whose keys the change is written in.
        readings: the run's recent readings, from which values are computed where possible.
        model: name or path of the run's model, if known.
        has_config: whether the run's config was found.
    """
    # A value computed from a reading that overflowed would be no setting.
    readings = {name: each for name, each in (readings or {}).items() if math.isfinite(each)}
    remedy = remedy_of(remedy_id)
    known_numbers = _known_numbers(knobs, readings)
    knobs, facts = _with_assumed(remedy, {**_logged_knobs(readings), **knobs})
    readings |= {name: float(each) for name, each in facts.items() if not isinstance(each, str)}
    change = remedy.tuned(remedy.change(knobs), readings)
    usual = change or _usual_change(remedy, knobs)
    if obstacle := _obstacle(remedy, usual, knobs, readings, framework):
        in_force = _already_set(remedy, knobs, framework) if _is_in_force(remedy, knobs) else ()
        return replace(_advice(remedy, model, obstacle=obstacle), already_set=in_force)
    condition, is_conditional = _condition(remedy, knobs, readings)
    resolved = replace(
        _advice(remedy, model),
        condition=condition,
        is_conditional=is_conditional,
        has_config=has_config,
    )
    is_known = find_framework(framework, configurable_frameworks()) is not None
    known = with_length_limit(knobs, readings)
    unknown = {} if change else _change_if_unknown(remedy, knobs, readings)
    resolved = replace(resolved, title=remedy.title_for(change or unknown, known_numbers))
    present = _present_value(change or unknown, knobs, known)
    remark = "; ".join(filter(None, (present, remedy.remark(change or unknown, known_numbers))))
    if change:
        lines = _with_remark(framework_settings(change, framework, known), remark)
        spelling = (*lines, *_restart_lines(remedy, framework))
        return replace(resolved, change=change, spelling=spelling, has_instructions=not is_known)
    return replace(
        resolved,
        spelling=_instructions(remedy, framework),
        config_missing=not remedy.how and bool(usual),
        if_not_set=_with_remark(framework_settings(unknown, framework, known), remark),
        already_set=() if unknown else _already_set(remedy, knobs, framework),
        has_instructions=bool(remedy.how) or (bool(unknown) and not is_known),
    )


def _obstacle(
    remedy: Remedy,
    usual: Mapping[str, Setting],
    knobs: Mapping[str, Setting],
    readings: Readings,
    framework: str,
) -> str:
    """Why a remedy cannot help the run; empty if it may help.

    Args:
        remedy: the remedy.
        usual: its change of settings.
        knobs: the run's settings, with those that the remedy assumes.
        readings: the run's recent readings.
        framework: the framework of the settings.
    """
    reason = (
        remedy.obstacle(knobs, readings)
        or _why_done(usual, framework)
        or _why_superfluous(remedy, usual, knobs, framework)
    )
    if reason or usual or remedy.how:
        return reason
    return _why_replaced(remedy, knobs, framework)


def _with_assumed(
    remedy: Remedy, knobs: Mapping[str, Setting]
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """The knobs with what a remedy assumes of a run, and the facts among them."""
    guesses = {assumed(name): True for name in remedy.assumes if name not in knobs}
    knobs = {**remedy.assumes, **guesses, **knobs}
    return knobs, {name: knobs[name] for name in (*remedy.assumes, *guesses)}


def _known_numbers(knobs: Mapping[str, Setting], readings: Readings) -> dict[str, float]:
    """The settings and the readings that are numbers."""
    numbers = {name: number(knobs, name) for name in knobs}
    return {**readings, **{name: value for name, value in numbers.items() if value is not None}}


def _logged_knobs(readings: Readings) -> dict[str, Setting]:
    """The knobs that a run logs, for a run whose config lacks them."""
    logged = {knob: readings[name] for knob, name in LOGGED_KNOBS.items() if name in readings}
    return {knob: round(value) if KNOBS[knob].integer else value for knob, value in logged.items()}


def _present_value(
    change: Mapping[str, Setting], knobs: Mapping[str, Setting], known: Mapping[str, Setting]
) -> str:
    """The number that the only changed setting has now; empty if it is unknown.

    Args:
        change: the new settings.
        knobs: the settings that the config or the log states.
        known: the same, with a length limit that the responses show.
    """
    if len(change) != 1:
        return ""
    (name,) = change
    now = known.get(name)
    if isinstance(now, bool) or not isinstance(now, int | float) or now == change[name]:
        return ""
    return f"now {'' if name in knobs else 'probably '}{now:.6g}"


def _with_remark(lines: Sequence[SettingLine], remark: str) -> tuple[SettingLine, ...]:
    """The lines, the first setting with a remark unless that is empty."""
    if not lines:
        return ()
    first, *others = lines
    note = "; ".join(filter(None, (remark, first.note)))
    return (replace(first, note=note) if first.key else first, *others)


def _advice(remedy: Remedy, model: str, *, obstacle: str = "") -> Advice:
    is_plain = _MODEL_NAME.fullmatch(model) is not None  # a name from a log may be any text
    command = re.sub(r"\bMODEL\b", model, remedy.command) if is_plain else remedy.command
    return Advice(
        id=remedy.id,
        title=remedy.title,
        applicability=remedy.applicability,
        change={},
        spelling=(),
        obstacle=obstacle,
        command=command,
        alternatives=remedy.alternatives,
    )


def with_length_limit(knobs: Mapping[str, Setting], readings: Readings) -> Mapping[str, Setting]:
    """The knobs with the length limit, which the longest response shows if some are truncated.

    Only settings that contain the limit use it: whether to change it is judged without.

    Args:
        knobs: the run's settings, as far as they are known.
        readings: readings of a step by metric; the longest response in tokens.
    """
    longest, truncated = readings.get(_MAX_LENGTH, 0.0), readings.get(_TRUNCATED, 0.0)
    if "max_length" in knobs or not (longest >= 1 and truncated > 0):
        return knobs
    return {**knobs, "max_length": round(longest)}


def _condition(
    remedy: Remedy, knobs: Mapping[str, Setting], readings: Readings
) -> tuple[str, bool]:
    """What the remedy acts on, as the end of a sentence, and whether it is unknown."""
    requirement = remedy.acts_on
    if requirement is None:
        return "", False
    known = requirement.known(knobs, readings)
    if met := requirement.met_by(known):
        return f"{plain_name(met[0])} is {format_reading(*met)}", False
    why = "not logged" if any("/" in name for name in requirement.names) else "unknown"
    return f"if {requirement.wanted or requirement.bound} ({why})", True


def _why_done(change: Mapping[str, Setting], framework: str) -> str:
    """Why there is nothing to change: the framework always does it; empty if it does not."""
    known = find_framework(framework, configurable_frameworks())
    if known is None or not change:
        return ""
    notes = [known.knobs.why_done(knob, setting) for knob, setting in change.items()]
    return "; ".join(dict.fromkeys(notes)) if all(notes) else ""


def _why_superfluous(
    remedy: Remedy, change: Mapping[str, Setting], knobs: Mapping[str, Setting], framework: str
) -> str:
    """Why there is nothing to change in a run that leaves the framework's own values alone."""
    known = find_framework(framework, configurable_frameworks())
    starts = {} if known is None else known.knobs.starts_with
    unknown = {name: starts[name] for name in change.keys() & starts.keys() - knobs.keys()}
    if known is None or not unknown or remedy.change({**PLAIN_GRPO, **knobs, **unknown}):
        return ""
    lines = framework_settings(unknown, framework, knobs)
    return f"{known.title} has {', '.join(line.line for line in lines)} unless the config differs"


def _why_replaced(remedy: Remedy, knobs: Mapping[str, Setting], framework: str) -> str:
    """Which other choice of the run excludes the remedy; empty if there is none."""
    others = {
        name: knobs[name]
        for name, wanted in remedy.change(PLAIN_GRPO).items()
        if isinstance(wanted, str) and name in knobs and knobs[name] != wanted
    }
    lines = framework_settings(others, framework, knobs)
    chosen = ", ".join(line.line for line in lines if line.key) or ", ".join(
        f"{name} {value}" for name, value in others.items()
    )
    return f"the run has {chosen}, which excludes it" if others else ""


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
    independent = _independent(remedy, usual, knobs)
    dependent = unknown - independent
    change = usual | {name: remedy.when_unknown.get(name, usual[name]) for name in dependent}
    change = remedy.tuned(change, readings)
    relative = dependent - remedy.when_unknown.keys()
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


def _is_in_force(remedy: Remedy, knobs: Mapping[str, Setting]) -> bool:
    """Whether the run has all settings that the remedy would change in a run of plain GRPO."""
    wanted = remedy.change(PLAIN_GRPO)
    if not wanted or not wanted.keys() <= knobs.keys():
        return False
    named = {name for name, value in wanted.items() if isinstance(value, bool | str)}
    own = {name: knobs[name] for name in wanted}
    is_equal = all(own[name] == wanted[name] for name in named)
    # A change to plain GRPO with the run's own values: none if they go as far or farther.
    return is_equal and (own == wanted or not remedy.change({**PLAIN_GRPO, **own}))


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
