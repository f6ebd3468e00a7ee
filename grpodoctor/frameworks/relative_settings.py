"""Settings that are relative to their present value: computed, or as an instruction in words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from grpodoctor.frameworks.written_settings import SettingLine
from grpodoctor.vocabulary.knobs import Setting

_RELATIVE = re.compile(r"<current value ([/x-]) ([\w.]+)>")
"""How a table of knobs writes them: divided by a number, multiplied by a number or by another
setting's value, or less a number."""

_DIGITS = 6


def with_values(
    lines: Iterable[SettingLine], settings: Mapping[str, Setting]
) -> tuple[SettingLine, ...]:
    """The lines with values instead of placeholders; an instruction where the value is unknown.

    Args:
        lines: settings of a framework.
        settings: the run's config, with dotted keys; empty if it is unknown.
    """
    return tuple(_with_value(line, settings) for line in lines)


def _with_value(line: SettingLine, settings: Mapping[str, Setting]) -> SettingLine:
    found = _RELATIVE.search(line.value)
    if found is None:
        return line
    sign, operand = found.groups()
    now, amount = _number(line.key, settings), _number(operand, settings)
    value = None if now is None or amount is None else _computed(now, sign, amount)
    if now is None or value is None:
        note = f" ({line.note})" if line.note else ""
        return SettingLine("", "", f"{_in_words(line.key, sign, operand)}{note}.")
    notes = [f"now {_written(now)}", line.note]
    return replace(line, value=_written(value), note="; ".join(filter(None, notes)))


def _number(name: str, settings: Mapping[str, Setting]) -> float | None:
    """A number that is written down, or that a setting has; None if it is unknown."""
    spellings = (name, name.lstrip("-"), name.lstrip("-").replace("-", "_"))
    value = next((settings[each] for each in spellings if each in settings), name)
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):  # None and lists are settings as well
        return None
    return number if math.isfinite(number) else None


def _written(number: float) -> str:
    """A whole number with all its digits: a count of tokens has no exponent."""
    return str(int(number)) if number.is_integer() else f"{number:.{_DIGITS}g}"


def _computed(now: float, sign: str, amount: float) -> float | None:
    """The new value; None if there is none above 0, such as half of one sequence."""
    if sign == "/":
        value = now // amount if now.is_integer() else now / amount
    else:
        value = now * amount if sign == "x" else round(now - amount, _DIGITS)
    return value if value > 0 else None


def _in_words(key: str, sign: str, operand: str) -> str:
    if sign == "-":
        return f"Lower {key} by {operand}"
    if sign == "/":
        return f"Halve {key}" if operand == "2" else f"Divide {key} by {operand}"
    number = operand.replace(".", "", 1).isdigit()
    return f"Multiply {key} by {operand if number else f'the present {operand}'}"
