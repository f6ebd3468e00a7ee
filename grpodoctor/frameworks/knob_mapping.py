"""How a framework reads and writes the canonical knobs: one row for each knob that it has.

A row of `KnobTable.mappings` gives the framework's key for a knob, how its value in a run's config
becomes the knob's value, and how the knob's value is written for the user. For example:

    KnobMapping("clip_high", "epsilon_high")
    KnobMapping("overlong", "overlong_filter", values={"none": False, "mask": True})
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.written_settings import (
    Lines,
    NothingToSet,
    Option,
    Product,
    Quotient,
    Raw,
    SettingLine,
    Settings,
    Syntax,
    Unsupported,
    WithNote,
    Written,
    format_setting,
)
from grpodoctor.vocabulary.config_facts import setting_named
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.plain_names import plain_name

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """A setting of a config that lies outside its knob's range, so no rule reads it."""

    knob: str
    """The canonical knob or fact."""
    key: str
    """The framework's key."""
    value: float


Reader = Callable[[Setting, Settings], Setting | None]
"""Turns a framework's value, given all settings of the config, into the knob's value; None if the
knob's value does not follow from them."""

_UNKNOWN_METHOD = Unsupported("see the remedy's page for an alternative")


def as_is(setting: Setting, _: Settings) -> Setting:
    """A reader for settings that have the knob's own values."""
    return setting


@dataclass(frozen=True, slots=True)
class KnobMapping:
    """How one framework reads and writes one knob, or one of `ENGINE_SETTINGS`."""

    knob: str
    key: str = ""
    """The framework's key, dotted as in its config file; empty if no single key holds the knob."""
    _: KW_ONLY
    values: Mapping[Setting, Written] = field(default_factory=dict)
    """What the framework has for single values of the knob. Plain values are read back as well."""
    write: Written | None = None
    """How all other values are written; None: the knob's own value under `key`."""
    read: Mapping[Setting, Setting] | Reader | None = None
    """How a value in a config is read: a function, or a mapping from the framework's values that
    adds to `values`. None: by `values`, or as it is if there are none."""
    reads: bool = True
    """Whether a config is read for this knob."""
    other_keys: tuple[str, ...] = ()
    """Keys to read if `key` is missing: older names, or one key for several knobs."""
    default: Setting | None = None
    """The framework's default value; None if it is not certain."""
    enabled_by: Lines = field(default_factory=dict)
    """Settings that must be written before this one."""
    note: str = ""
    """A remark for the user on every written value."""

    def read_from(self, settings: Settings) -> Setting | None:
        """The knob's value in a config; None if the config does not say, or not a valid one."""
        if not self.key or not self.reads:
            return None
        for key in (self.key, *self.other_keys):
            setting = _number_or_text(settings.get(key, self.default))
            value = None if setting is None else self._knob_value(setting, settings)
            if value is not None and _is_valid(self.knob, value):
                return value
        return None

    def settings_for(self, value: Setting) -> dict[str, Setting]:
        """The framework's settings for a value of the knob; empty if they are not plain values."""
        written = self.values.get(value, self.write)
        if isinstance(written, NothingToSet | Unsupported | Quotient | Product) or callable(
            written
        ):
            return {}
        if not isinstance(written, Mapping):
            written = {self.key: value if written is None else written} if self.key else {}
        lines = {**self.enabled_by, **written}
        return {key: _plain(each, {}) for key, each in lines.items()}

    def out_of_range(self, settings: Settings) -> OutOfRange | None:
        """The setting that lies outside the knob's range; None if there is none.

        Only a value that means the same in the framework and here has the knob's range: one that
        the reader converts, or that other settings switch off, is left alone.
        """
        if not self.key or not self.reads:
            return None
        for key in (self.key, *self.other_keys):
            setting = _number_or_text(settings.get(key))
            if isinstance(setting, bool) or not isinstance(setting, int | float):
                continue
            value = self._knob_value(setting, settings)
            same = value == setting or (value is not None and setting != setting)  # NaN
            return OutOfRange(self.knob, key, setting) if same and self._excludes(setting) else None
        return None

    def _excludes(self, setting: float) -> bool:
        low, high = setting_named(self.knob).low, setting_named(self.knob).high
        return low is not None and high is not None and not low <= setting <= high

    def _knob_value(self, setting: Setting, settings: Settings) -> Setting | None:
        if callable(self.read):
            return self.read(setting, settings)
        by_value = {**self._reversed_values(), **(self.read or {})}
        return by_value.get(setting) if by_value else setting

    def _reversed_values(self) -> dict[Setting, Setting]:
        pairs = (
            (written.value if isinstance(written, WithNote) else written, value)
            for value, written in self.values.items()
        )
        return {text: value for text, value in pairs if isinstance(text, bool | int | float | str)}


def always(knob: str, value: Setting, note: str, instead: str) -> KnobMapping:
    """A row for a knob that always has one value.

    Args:
        knob: the canonical knob.
        value: its value.
        note: what the user reads if this value is wanted.
        instead: what the user can do if another value is wanted.
    """
    return KnobMapping(knob, values={value: NothingToSet(note)}, write=Unsupported(instead))


def unsupported(knob: str, instead: str) -> KnobMapping:
    """A row for a knob that the framework lacks; `instead` is what the user can do."""
    return KnobMapping(knob, write=Unsupported(instead))


def nothing_to_set(knob: str, note: str) -> KnobMapping:
    """A row for a knob that the framework handles by itself, as `note` says."""
    return KnobMapping(knob, write=NothingToSet(note))


def with_changes(rows: tuple[KnobMapping, ...], *changes: KnobMapping) -> tuple[KnobMapping, ...]:
    """The rows of a framework that builds on another one: its own rows replace the inherited."""
    own = {row.knob: row for row in changes}
    return tuple(own.get(row.knob, row) for row in rows)


@dataclass(frozen=True, kw_only=True)
class KnobTable:
    """All knobs of a framework."""

    title: str
    """The framework's name in messages."""
    mappings: tuple[KnobMapping, ...]
    engine_settings: tuple[KnobMapping, ...]
    """Rows for `ENGINE_SETTINGS`; they are written, never read."""
    syntax: Syntax = field(default_factory=Syntax)
    methods: tuple[KnobMapping, ...] = ()
    """How published methods are written and read. A row for a knob extends the knob's row in
    `mappings`; the others are rows for `METHOD_SETTINGS`."""
    facts: tuple[KnobMapping, ...] = ()
    """Rows for the `CONFIG_FACTS` that a config contains; they are read, never written."""
    defaults: Settings = field(default_factory=dict)
    """The framework's values of knobs that a config need not contain, for checks of a config."""

    starts_with: Settings = field(default_factory=dict)
    """The framework's values of knobs that other settings may change, for advice to a run whose
    config is unknown: a remedy that they make superfluous is not offered."""

    former_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of earlier versions, with those that replaced them. They are read, but do not show
    which framework a config is of: other frameworks have some of them."""

    checkpoint_interval: str = ""
    """Key of the number of steps between two saved checkpoints; empty if it is not known."""

    def read(self, settings: Settings) -> dict[str, Setting]:
        """The knobs that a run's config sets; values out of bounds are left out."""
        settings = self.with_current_keys(settings)
        rows = (self._rows[mapping.knob] for mapping in self.mappings)
        values = {row.knob: row.read_from(settings) for row in rows}
        return {knob: value for knob, value in values.items() if value is not None}

    def not_understood(self, settings: Settings) -> set[str]:
        """The knobs that a config sets to a value from which theirs does not follow."""
        settings = self.with_current_keys(settings)
        rows = (self._rows[mapping.knob] for mapping in self.mappings)
        return {
            row.knob
            for row in rows
            if row.reads
            and row.key
            and any(settings.get(key) is not None for key in (row.key, *row.other_keys))
            and row.read_from(settings) is None
        }

    def read_facts(self, settings: Settings, changes: Settings | None = None) -> dict[str, Setting]:
        """The facts that a run's config contains; invalid values are left out.

        Args:
            settings: the config.
            changes: knobs that were changed since, with their values.
        """
        current, unwritten = dict(self.with_current_keys(settings)), set()
        for knob, value in (changes or {}).items():
            lines = self._rows[knob].settings_for(value) if knob in self._rows else {}
            current.update(lines)
            unwritten |= {knob} if not lines else set()
        values = {row.knob: row.read_from(current) for row in self.facts}
        return {
            fact: value
            for fact, value in values.items()
            if value is not None and fact not in unwritten
        }

    def with_current_keys(self, settings: Settings) -> Settings:
        """A config whose former keys have their present names."""
        if not self.former_keys:
            return settings
        present = {self.former_keys.get(key, key): value for key, value in settings.items()}
        return {**present, **{key: settings[key] for key in present if key in settings}}

    def out_of_range(self, settings: Settings) -> tuple[OutOfRange, ...]:
        """The settings of a config that lie outside the range of a knob or fact, one per key."""
        rows = (*(self._rows[mapping.knob] for mapping in self.mappings), *self.facts)
        found: dict[str, OutOfRange] = {}
        for row in rows:
            setting = row.out_of_range(settings)
            if setting is not None:
                found.setdefault(setting.key, setting)
        return tuple(found.values())

    def reads_any_of(self, settings: Settings) -> bool:
        """Whether a config has a key of a knob."""
        return not self._keys.isdisjoint(self.with_current_keys(settings))

    @cached_property
    def all_keys(self) -> frozenset[str]:
        """All keys of the framework that the table has, read or written, present or former."""
        rows = (*self.mappings, *self.engine_settings, *self.methods, *self.facts)
        written = (value for row in rows for value in (row.write, *row.values.values()))
        lines = (line for line in (*written, *(row.enabled_by for row in rows)))
        return frozenset((
            *(key for row in rows for key in (row.key, *row.other_keys) if key),
            *(key for line in lines if isinstance(line, Mapping) for key in line),
            *self.former_keys,
        ))  # fmt: skip

    def count_keys(self, settings: Settings) -> int:
        """The number of keys in a config that belong to a knob."""
        return len(self._keys.intersection(settings))

    def count_fact_keys(self, settings: Settings) -> int:
        """The number of keys in a config that belong to a fact."""
        keys = {key for row in self.facts for key in (row.key, *row.other_keys) if key}
        return len(keys.intersection(settings))

    def lines(self, knob: str, setting: Setting, knobs: Settings) -> tuple[SettingLine, ...]:
        """The lines that give a knob a value.

        Args:
            knob: a canonical knob, or one of `ENGINE_SETTINGS` or `METHOD_SETTINGS`.
            setting: its new value.
            knobs: all knobs in force after the change.
        """
        row = self._rows.get(knob, KnobMapping(knob, write=_UNKNOWN_METHOD))
        return tuple(self._lines(row, setting, knobs, row.values.get(setting, row.write)))

    def has_row(self, knob: str) -> bool:
        """Whether the table says anything about a knob or method setting."""
        return knob in self._rows

    def refusal(self, line: SettingLine) -> str:
        """What the framework has no setting for, if a line states that; empty otherwise."""
        start = f"{self.title} has no setting for "
        return line.note.removeprefix(start) if not line.key and line.note.startswith(start) else ""

    def why_done(self, knob: str, setting: Setting) -> str:
        """Why there is nothing to set: the framework always does this; empty if it does not."""
        row = self._rows.get(knob)
        written = row.values.get(setting, row.write) if row else None
        return written.note if isinstance(written, NothingToSet) else ""

    @cached_property
    def _rows(self) -> dict[str, KnobMapping]:
        rows = {row.knob: row for row in (*self.mappings, *self.engine_settings)}
        for row in self.methods:
            main = rows.get(row.knob)
            rows[row.knob] = row if main is None else _merged(main, row)
        return rows

    @cached_property
    def _keys(self) -> frozenset[str]:
        rows = [row for row in self.mappings if row.key and row.reads]
        return frozenset(key for row in rows for key in (row.key, *row.other_keys))

    def _lines(
        self, row: KnobMapping, setting: Setting, knobs: Settings, written: Written | None
    ) -> Iterator[SettingLine]:
        if isinstance(written, NothingToSet):
            yield SettingLine("", "", written.note)
        elif isinstance(written, Unsupported):
            wanted = plain_name(row.knob)
            if setting is not True:
                between = " " if isinstance(setting, str) else "="
                wanted = f"{wanted}{between}{format_setting(setting)}"
            yield SettingLine(
                "", "", f"{self.title} has no setting for {wanted}: {written.instead}"
            )
        elif isinstance(written, Mapping):
            for key, value in written.items():
                yield self.syntax.line(key, _in_force(value, knobs))
        elif callable(written):
            lines = written(setting, knobs)
            if isinstance(lines, tuple):
                yield from lines
            else:
                yield from self._lines(row, setting, knobs, lines)
        else:
            for key, value in row.enabled_by.items():
                yield self.syntax.line(key, _in_force(value, knobs))
            yield self.syntax.line(row.key, _value(written, setting, knobs), row.note)


def _merged(main: KnobMapping, extra: KnobMapping) -> KnobMapping:
    """A knob's row with the values, the writer and the reader of a row of methods."""
    read = main.read if extra.read is None else extra.read
    if isinstance(main.read, Mapping) and isinstance(extra.read, Mapping):
        read = {**main.read, **extra.read}
    return replace(
        main,
        values={**main.values, **extra.values},
        write=main.write if extra.write is None else extra.write,
        read=read,
    )


def _in_force(value: Setting | WithNote | Option, knobs: Settings) -> Setting | WithNote:
    return knobs.get(value.name, value.usual) if isinstance(value, Option) else value


def _plain(value: Setting | WithNote | Option, knobs: Settings) -> Setting:
    value = _in_force(value, knobs)
    return value.value if isinstance(value, WithNote) else value


def one_line_per_key(lines: Iterable[SettingLine]) -> list[SettingLine]:
    """The lines without repetition: a later, more specific line of a key replaces the value.

    A note stays if the later line has none.
    """
    kept: dict[tuple[str, str], SettingLine] = {}
    for line in lines:
        at = (line.key, "" if line.key else line.note)
        note = line.note or (kept[at].note if at in kept else "")
        kept[at] = replace(line, note=note)
    return list(kept.values())


def _value(
    written: Setting | WithNote | Quotient | Product | None, setting: Setting, knobs: Settings
) -> Setting | WithNote:
    if isinstance(written, Quotient):
        return WithNote(_divided(written, setting, knobs), written.note)
    if isinstance(written, Product):
        return WithNote(_multiplied(written, setting, knobs), written.note)
    return setting if written is None else written


def _divided(written: Quotient, setting: Setting, knobs: Settings) -> Setting:
    product = 1.0
    for name in written.dividend:
        factor = knobs.get(name)
        if not isinstance(factor, int | float):
            formula = " x ".join(name.replace("_", " ") for name in written.dividend)
            return Raw(f"<{formula} / {format_setting(setting)}>")
        product *= factor
    size = product / setting if isinstance(setting, int | float) and setting else product
    return round(size)


def _multiplied(written: Product, setting: Setting, knobs: Settings) -> Setting:
    factor = knobs.get(written.factor)
    if isinstance(factor, int | float) and isinstance(setting, int | float):
        return round(setting * factor)
    return Raw(f"<{format_setting(setting)} x {written.factor.replace('_', ' ')}>")


def _number_or_text(setting: Setting | None) -> Setting | None:
    """The number in a text: YAML reads `1e-6` as text."""
    if isinstance(setting, str) and len(setting) <= 40 and _NUMBER.fullmatch(setting):
        return float(setting)
    return setting


def _is_valid(knob: str, value: Setting) -> bool:
    try:
        setting_named(knob).check(value)
    except ConfigError:
        return False
    return True
