"""Quantities in texts: numbers with a unit of measurement."""

from __future__ import annotations

import re

_SYMBOLS = (
    r"[kMG]?W(?:h)?|[kMG]?Hz|[kM]?(?:J|N|V|Pa)|m?A|[mk]?cal|kcal|[kcm\u00b5\u03bcn]?(?:m|g|mol)(?:[\u00b2\u00b3]|\^[23])?|"
    r"km/h|mph|m/s|[mcd]?[lL]|ms|min|h|s|t|lb|oz|ft|GB|MB|kB|TB|\u03a9|K|M|"
    r"\u00b0\s?[CF]?|\u2103|%|\\%|\u20ac|\u00a3|\u00a5|USD|EUR|GBP"
)
_WORDS = (
    r"degrees?|percent|per cent|(?:kilo|milli|micro)?gram(?:me)?s?|"
    r"(?:kilo|centi|milli)?met(?:er|re)s?|(?:milli|centi)?lit(?:er|re)s?|ton(?:ne)?s?|"
    r"(?:milli)?seconds?|minutes?|hours?|days?|weeks?|months?|years?|miles?|yards?|feet|foot|"
    r"inch(?:es)?|gallons?|pints?|cups?|ounces?|pounds?|dollars?|cents?|euros?|"
    r"(?:kilo|mega)?watts?|volts?|amperes?|amps?|ohms?|joules?|newtons?|moles?"
)
_UNIT = rf"(?:{_SYMBOLS}|{_WORDS})(?![^\W_])"
_MEASURED = re.compile(
    rf"(?<![\w.])\d[\d.,]*\s?-?(?P<unit>{_UNIT})|[$\u20ac\u00a3\u00a5]\s?\d[\d.,]*"
)
_CHINESE = re.compile(
    r"\d\s?(?P<unit>\u5143|\u5343\u514b|\u514b|\u516c\u91cc|\u5343\u7c73|\u5206\u949f|\u5c0f\u65f6|"
    r"\u79d2|\u7c73|\u5347|\u5929|\u5e74)"
)
"""Chinese units, which other characters may follow."""


def last_unit(text: str) -> str:
    """The unit of the last quantity in a text; empty if none has a unit behind its number."""
    matches = [*_MEASURED.finditer(text), *_CHINESE.finditer(text)]
    units = [match["unit"] for match in matches if match["unit"]]
    return units[-1] if units else ""


def has_quantity(text: str) -> bool:
    """Whether a text contains a number with a unit or a currency sign."""
    return bool(_MEASURED.search(text) or _CHINESE.search(text))
