"""Texts reduced to what they say: without layout, markup, case and punctuation."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby

_COSMETIC_LATEX = re.compile(r"\\(?:left|right|displaystyle|,|;|!|:|quad|qquad)(?![a-zA-Z])")
_VARIANT_LATEX = re.compile(r"\\[dt]frac(?![a-zA-Z])")
_MARKUP = re.compile(r"\*\*|__|`+|^#+\s|</?[a-z]\w*(?:\s[^<>\d]{0,40})?/?>", re.MULTILINE)
"""Markdown and HTML tags. Numbers in a tag say something, such as the path of a drawing."""
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-")
_SIGNS = str.maketrans({"\u00d7": "*", "\u22c5": "*", "\u00f7": "/"})
_WORD = re.compile(
    r"\d+(?:\.\d+)?|[^\W\d_]+|[-+*/^=<>%|()\[\]\u00ac\u00b1\u2190-\u21ff\u2200-\u22ff]"
)
"""Numbers, words, operators and brackets. Operators and brackets carry meaning: 3+4 is not 3-4, and
P \u2227 Q is not P \u2228 Q."""
_DRAWN = re.compile(r"\s*(?:\S+|\S(?:[ \t]+\S)+)\s*")
_MIN_DRAWN = 3
"""Signs of a line of a drawing."""
_ACCENTS = re.compile("[\u0300-\u036f]")
_CURRENCIES = frozenset({"dollar", "dollars", "usd", "euro", "euros", "eur", "pounds", "gbp"})
_NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate(
        (
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        )
    )
} | {"percent": "%"}
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def words_of(text: str) -> tuple[str, ...]:
    """The words, numbers, operators and brackets of a text, folded to one spelling."""
    text = unicodedata.normalize("NFKC", text).translate(_DASHES).casefold()
    text = _MARKUP.sub(" ", text)
    text = _VARIANT_LATEX.sub(r"\\frac", _COSMETIC_LATEX.sub(" ", text)).translate(_SIGNS)
    return tuple(_WORD.findall(_THOUSANDS.sub("", _HYPHEN.sub(" ", text))))


def without_accents(text: str) -> str:
    """A text without the accents of Latin, Greek and Cyrillic letters."""
    return _ACCENTS.sub("", unicodedata.normalize("NFD", text))


def loose_words_of(text: str) -> tuple[str, ...]:
    """The words of a text with one spelling for numbers: 5.00 is 5, five is 5, $5 is 5 euros.

    Behind them are the lines of drawings, such as boards and mazes, in which each sign counts.
    """
    words = (_NUMBER_WORDS.get(word, word) for word in words_of(text))
    return (
        *(
            word.rstrip("0").rstrip(".") if "." in word else word
            for word in words
            if word not in _CURRENCIES
        ),
        *_drawn_lines(text),
    )


def _drawn_lines(text: str) -> list[str]:
    """The lines of boards and mazes, without blanks.

    Such a line is one token, or tokens of one sign. It has as many signs as its neighbor, or mostly
    signs that are neither letters nor digits, as a second line has.
    """
    lines = ["".join(each.split()) if _DRAWN.fullmatch(each) else "" for each in text.split("\n")]
    kept: set[int] = set()
    for length, block in groupby(range(len(lines)), lambda at: len(lines[at])):
        places = list(block)
        if length >= _MIN_DRAWN and len(places) > 1:
            kept |= set() if all(lines[at].isalnum() for at in places) else set(places)
    symbols = {at for at, line in enumerate(lines) if _is_symbols(line)}
    kept |= symbols if len(symbols) > 1 else set()
    return [lines[at] for at in sorted(kept)]


def _is_symbols(line: str) -> bool:
    """Whether at least half of a line are signs of several kinds, unlike a rule of dashes."""
    signs = [sign for sign in line if not sign.isalnum()]
    return len(line) >= _MIN_DRAWN and len(set(line)) > 1 and len(signs) >= len(line) / 2


def numbers_of(text: str) -> list[float]:
    """The numbers in a text."""
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def number_of(text: str) -> float | None:
    """The number that a text is; None if it is something else."""
    text = text.strip()
    return float(text.replace(",", "")) if NUMBER.fullmatch(text) else None
