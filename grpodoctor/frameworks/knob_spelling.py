"""What a spelling table is made of: a row per knob, which writes a setting as a framework does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grpodoctor.vocabulary.knobs import Setting


@dataclass(frozen=True, slots=True)
class Spelled:
    """One line of a framework's own configuration."""

    key: str
    """The framework's key or flag; empty where there is nothing to set."""
    value: str
    """The value as it is written there; empty for a bare flag."""
    note: str = ""
    """What to mind; where the key is empty, why there is nothing to set and what to do instead."""

    @property
    def line(self) -> str:
        """Key and value as they are typed; the note where there is no key."""
        if not self.key:
            return self.note
        separator = " " if self.key.startswith("--") else "="
        return f"{self.key}{separator}{self.value}" if self.value else self.key


_SHORT: Mapping[Setting, str] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}

Row = Callable[[Setting, Mapping[str, Setting]], tuple[Spelled, ...]]
"""Writes a setting, given every knob known to be in force once the change is made."""

Table = Mapping[str, Row]
"""A row for each canonical knob."""


def written(setting: Setting) -> str:
    """A setting as most configuration languages write it: `true`, `16`, `3.3e-07`, `token-mean`."""
    if isinstance(setting, bool):
        return str(setting).lower()
    return f"{setting:.10g}" if isinstance(setting, float) else str(setting)


def same(key: str, note: str = "") -> Row:
    """The setting as it is, under another name."""
    return lambda setting, _: (Spelled(key, written(setting), note),)


def lacks(framework: str, instead: str) -> Row:
    """The framework has no such setting."""
    note = f"{framework} has no such setting: {instead}"
    return lambda *_: (Spelled("", "", note),)


def fixed(note: str) -> Row:
    """It is always so, and there is nothing to set."""
    return lambda *_: (Spelled("", "", note),)


def always(*lines: Spelled) -> Row:
    """The same lines, whatever the setting."""
    return lambda *_: lines


def choice(rows: Mapping[Setting, Row | tuple[Spelled, ...]], otherwise: Row) -> Row:
    """A setting that is spelled case by case."""

    def write(setting: Setting, knobs: Mapping[str, Setting]) -> tuple[Spelled, ...]:
        row = rows.get(setting, otherwise)
        return row if isinstance(row, tuple) else row(setting, knobs)

    return write


def known(knobs: Mapping[str, Setting], name: str, default: str) -> str:
    """The setting of another knob, or `default` where it is not known."""
    return written(knobs[name]) if name in knobs else default


def short_dtype(key: str, note: str = "") -> Row:
    """A dtype by its short name: `bf16`, `fp16`, `fp32`."""
    return lambda setting, _: (Spelled(key, _SHORT.get(setting, written(setting)), note),)


def quotient(
    key: str, over: tuple[str, ...], setting: Setting, knobs: Mapping[str, Setting], note: str = ""
) -> Spelled:
    """A size: the product of the knobs in `over`, divided by `setting`."""
    product = 1.0
    for name in over:
        factor = knobs.get(name)
        if not isinstance(factor, int | float):
            formula = " x ".join(each.replace("_", " ") for each in over)
            return Spelled(key, f"<{formula} / {written(setting)}>", note)
        product *= factor
    size = product / setting if isinstance(setting, int | float) and setting else product
    return Spelled(key, written(round(size)), note)


def times(
    key: str, other: str, setting: Setting, knobs: Mapping[str, Setting], note: str = ""
) -> Spelled:
    """A size: `setting` times the knob `other`."""
    factor = knobs.get(other)
    if isinstance(factor, int | float) and isinstance(setting, int | float):
        return Spelled(key, written(round(setting * factor)), note)
    return Spelled(key, f"<{written(setting)} x {other.replace('_', ' ')}>", note)
