"""How settings are written in the syntax of a framework's config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grpodoctor.vocabulary.knobs import Setting

Settings = Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One line of a framework's configuration."""

    key: str
    """The framework's key or flag; empty if there is nothing to set."""
    value: str
    """The value as the framework expects it; empty for a bare flag."""
    note: str = ""
    """A remark on the setting. Without a key: why there is nothing to set, what to do instead."""

    @property
    def line(self) -> str:
        """Key and value as the user types them; the note if there is no key."""
        if not self.key:
            return self.note
        separator = " " if self.key.startswith("--") else "="
        return f"{self.key}{separator}{self.value}" if self.value else self.key

    @property
    def commented_line(self) -> str:
        """The line, followed by the note as a comment."""
        return f"{self.line}  # {self.note}" if self.key and self.note else self.line


class Raw(str):
    """A value that is written without quotes: an expression, or a number with its digits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WithNote:
    """A framework's value, and a remark on it for the user."""

    value: Setting
    note: str


@dataclass(frozen=True, slots=True)
class Option:
    """The value of an option of the written value, one of `OPTIONS` in `settings.py`."""

    name: str
    usual: Setting
    """Its value if it is not known."""


@dataclass(frozen=True, slots=True)
class NothingToSet:
    """The framework already does this, or a setting must be removed, which the note names."""

    note: str


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The framework has no setting for this value of the knob."""

    instead: str
    """What the user can do instead."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """The framework sets a size: the product of other knobs divided by this one."""

    dividend: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Product:
    """The framework sets a size: this knob times another one."""

    factor: str
    note: str = ""


Lines = Mapping[str, Setting | WithNote | Option]
"""Several settings at once: the framework's keys and values."""
Writer = Callable[[Setting, Settings], tuple[SettingLine, ...] | Lines | NothingToSet | Unsupported]
"""Writes a value, given all knobs that are in force after the change."""
Written = Setting | WithNote | NothingToSet | Unsupported | Quotient | Product | Lines | Writer

SHORT_DTYPES: Mapping[Setting, Written] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def format_setting(setting: Setting) -> str:
    """A value in the syntax of most config languages: `true`, `16`, `3.3e-07`, `token-mean`."""
    if isinstance(setting, bool):
        return str(setting).lower()
    return f"{setting:.10g}" if isinstance(setting, float) else str(setting)


def known_or(knobs: Settings, name: str, placeholder: str) -> str:
    """The value of another knob as text, or a placeholder if it is unknown."""
    return format_setting(knobs[name]) if name in knobs else placeholder


def overlong_weight(key: str, knobs: Settings) -> SettingLine:
    """The weight of the soft overlong punishment, which must fit the rewards.

    Args:
        key: the framework's key.
        knobs: the settings in force; a preset has a weight for rewards of 0 and 1.
    """
    if "overlong_weight" in knobs:
        note = "for rewards of 0 and 1; 1.0 for -1 and 1, as in the paper"
        return SettingLine(key, format_setting(knobs["overlong_weight"]), note)
    return SettingLine(key, "1.0", "for rewards of -1 and 1, as in the paper; 0.5 for 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """How a framework's users type keys and values."""

    prefix: str = ""
    """Written before a key: `--`."""
    dashes: bool = False
    """Underscores of a key become dashes on the command line."""
    bare_flags: bool = False
    """True is a flag without a value, and false is the absence of that flag."""
    capital_booleans: bool = False
    """`True` and `False`, as in Python."""
    quotes: bool = False
    """Texts are quoted with double quotes."""

    def flag(self, key: str) -> str:
        """A key of the config as the user types it."""
        return self.prefix + (key.replace("_", "-") if self.dashes else key)

    def line(self, key: str, value: Setting | WithNote, note: str = "") -> SettingLine:
        """A key and a value as the user types them."""
        if isinstance(value, WithNote):
            note = value.note
            value = value.value
        if self.bare_flags and isinstance(value, bool):
            if value:
                return SettingLine(self.flag(key), "", note)
            return SettingLine("", "", f"omit {self.flag(key)}")
        return SettingLine(self.flag(key), self._text(value), note)

    def _text(self, value: Setting) -> str:
        if isinstance(value, bool) and self.capital_booleans:
            return str(value)
        is_text = isinstance(value, str) and not isinstance(value, Raw)
        if is_text and self.quotes and not str(value).startswith("<"):  # a placeholder
            return f'"{value}"'
        return format_setting(value)
