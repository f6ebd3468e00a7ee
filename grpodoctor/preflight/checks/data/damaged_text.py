"""DAT117."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import ANSWER_COLUMNS
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.encoded_twice import has_escapes, is_written_object
from grpodoctor.preflight.texts.lost_numbers import lost_numbers
from grpodoctor.preflight.texts.template_slots import (
    EMPTY_OBJECTS,
    END,
    are_objects,
    empty_slots,
    repeats_paragraph,
)
from grpodoctor.probe.inputs.prompt_columns import PROMPT_COLUMNS
from grpodoctor.support.numbers import part_of

_SHOWN = 4
_MAX_SLOT_ROWS = 2000
_TEXT_TABLES = frozenset({".csv", ".tsv"})
"""Formats whose cells are text."""
_PLACEHOLDER = re.compile(r"(?<![\\\w}^_$]){{?\s*([A-Za-z_]\w*)\s*}}?")
"""A name in braces that belongs to no LaTeX command."""
_CODE_BEFORE = re.compile(r"[`=;]|\bf[\"']|\w\(|</?\w|^\s*\d+\.\s+\S+[({\[]")
_PLACEHOLDER_NAMES = frozenset({*PROMPT_COLUMNS, *ANSWER_COLUMNS, "context", "choices", "options"})
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|nbsp|#\d{2,5});")
_MARKUP = re.compile(r"</[a-zA-Z][\w-]*>|<(?:br|img|input|hr|meta|link)\b[^<>]*>", re.IGNORECASE)
"""Tags of a page: its entities belong to it."""
_FIELD = re.compile(
    r"^[ \t*>-]{0,8}(?P<label>[^\W\d_][\w ]{0,40}?)\**[ \t]*[:=\uff1a][ \t]*"
    r"(?P<value>[^\n]{0,80})$",
    re.MULTILINE,
)
"""A line with a label and a value."""
_NO_VALUES = frozenset({"nan", "NaN", "null", "undefined", "<NA>", "NaT", "[object Object]"})
"""What programs write for a missing value."""
_NO_TEXTS = frozenset({"None", "N/A", "[]", "{}"})
"""What they also write, and people in short fields, such as `Allergies: None`."""
_MIN_TEXT = 30
"""Letters of a usual value in a field of text."""
_OBJECT = re.compile(r"<[\w.]+ (?:object )?at 0x[0-9a-f]{6,}>|\[object Object\]")
"""What programs write for an object without a text."""
_INVISIBLE = re.compile("[\u200b\u2060\ufeff\u00ad]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Marks of the direction of writing, which belong to texts that run from right to left."""
_FROM_THE_RIGHT = frozenset({"R", "AL"})
"""Classes of the letters of Hebrew, Arabic and the like (Unicode Standard Annex 9)."""
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
"""Digits and Latin letters of full width."""
_EASTERN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Kana, Chinese characters and Hangul."""


class DamagedText(Check):
    """Prompts contain unfilled placeholders, wrong characters, or data written as text.

    What it sees:
        Names of columns in braces that no program filled in ({question}); text that was encoded as
        UTF-8 and decoded as another encoding; replacement characters; HTML entities; line breaks
        that are written as a backslash and an n; and lists of messages that are stored as text;
        lines with a label whose value is nan, None or an object of a program, if other prompts have
        a value there; and places between two sentences that all prompts share, or behind the last
        one, where a few prompts have nothing, None or a placeholder and the others a text, such as
        a table; sentences that have numbers in other prompts, and holes in their place; and long
        paragraphs that a prompt contains twice.
        Also letters that became question marks; answers with wrongly decoded, decomposed or
        invisible characters, with a carriage return at the end, or with full-width digits and
        letters that their prompts do not have. Marks of the direction of writing do not count in
        rows with Arabic, Hebrew or similar letters.

    Why it matters:
        A prompt with a placeholder asks nothing. Wrong characters change numbers, formulas and
        names, and the model learns a text that no user writes.

    What to do:
        Make the file again: fill in the placeholders, read the source as UTF-8, undo escapes, and
        store messages as objects (JSON lines or Parquet, not CSV).

    When it is wrong:
        Tasks about templates, encodings or HTML contain such text on purpose. A backslash and an n
        between quotation marks, in code or in a formula is not counted, and neither are the
        entities of a page with its tags.

    References:
        None.
    """

    code: ClassVar[str] = "DAT117"
    name: ClassVar[str] = "damaged-prompt-text"
    summary: ClassVar[str] = "Prompts contain unfilled placeholders or wrong characters."
    warning_share: ClassVar[float] = 0.01
    """Share of prompts from which the finding is a warning: single ones may be on purpose."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Search every prompt."""
        rows = context.rows
        if not rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        names = _PLACEHOLDER_NAMES | {str(name).casefold() for name in rows[0].columns}
        return (
            *self._found(
                rows, "contain an unfilled placeholder",
                lambda text: any(
                    match[1].casefold() in names and not _is_code(text, match.start())
                    for match in _PLACEHOLDER.finditer(text)
                ),
                "Fill in the template before the file is written.",
            ),
            *self._found(rows, "contain wrongly decoded characters", _is_misread,
                         "Read the source of the data as UTF-8."),
            *self._found(rows, "contain question marks within words, in place of letters",
                         _has_lost_letters,
                         "Write the data as UTF-8: an encoding without these letters lost them."),
            *self._found(rows, "contain line breaks written as a backslash and an n", has_escapes,
                         "Undo one level of escapes: the text was encoded as JSON twice."),
            *self._report(_written_messages(context), len(rows),
                          "are lists of messages stored as text",
                          "Store messages as objects, in JSON lines or Parquet: CSV keeps only "
                          "their text."),
            *self._found(rows, "contain HTML entities",
                         lambda text: bool(_ENTITY.search(text)) and not _MARKUP.search(text),
                         "Unescape the HTML of the source."),
            *self._report(_without_value(rows), len(rows),
                          "have a label without its value, such as nan or None",
                          "Fill in the value, or leave out the line where there is none."),
            *self._empty_slots(rows),
            *self._report(_without_numbers(rows), len(rows),
                          "lack numbers that other prompts have in the same sentences",
                          "Make the prompts again from their source; a filter removed numbers."),
            *self._found(rows, "contain the same paragraph twice", repeats_paragraph,
                         "Remove one of them: the prompt's parts were joined twice."),
            *self._answers(rows, "escaped",
                           lambda row: has_escapes(row.answer or "")
                           and not any(map(has_escapes, row.texts())),
                           "Undo one level of escapes in the answers."),
            *self._answers(rows, "invisible or full-width", _is_odd,
                           "Normalize the answers (NFKC), and remove invisible characters."),
            *self._answers(rows, "carriage return",
                           lambda row: (row.answer or "").endswith("\r")
                           and "\r" not in "".join(row.texts()),
                           "Remove white space around answers; the source has Windows' line ends."),
            *self._answers(rows, "decomposed Unicode",
                           lambda row: is_decomposed(row.answer or "")
                           and not any(map(is_decomposed, row.texts())),
                           "Bring the answers into the composed form (NFC), which models write."),
            *self._answers(rows, "wrongly decoded", lambda row: _is_misread(row.answer or ""),
                           "Read the source of the answers as UTF-8."),
        )  # fmt: skip

    def _empty_slots(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Places of the prompts' template that a few prompts leave empty."""
        for slot in empty_slots(["\n".join(row.texts()) for row in rows[:_MAX_SLOT_ROWS]])[:1]:
            place = f"behind {slot.before[:40]!r}"
            if slot.after != END:
                place = f"between {slot.before[:40]!r} and {slot.after[:40]!r}"
            yield from self._report(
                [rows[at] for at in slot.rows],
                min(len(rows), _MAX_SLOT_ROWS),
                f"have nothing, None or a placeholder {place}",
                "Fill in what is missing there, such as a table or a passage; others have it.",
            )

    def _answers(
        self, rows: Sequence[PromptRow], words: str, holds: Callable[[PromptRow], bool], advice: str
    ) -> Iterator[CheckFinding]:
        answered = [row for row in rows if row.answer]
        odd = [row for row in answered if holds(row)]
        if odd:
            share = len(odd) / len(answered)
            yield CheckFinding(
                "warning" if share >= self.warning_share else "info",
                f"{part_of(len(odd), len(answered), 'answers', 'have')} {words} characters.",
                (advice,),
                tuple(f"{row.location}: {ascii(row.answer)[:80]}" for row in odd[:_SHOWN]),
                {"share": share},
            )

    def _found(
        self, rows: Sequence[PromptRow], words: str, matches: Callable[[str], bool], advice: str
    ) -> Iterator[CheckFinding]:
        damaged = [row for row in rows if any(matches(text) for text in row.texts())]
        yield from self._report(damaged, len(rows), words, advice)

    def _report(
        self, damaged: Sequence[PromptRow], total: int, words: str, advice: str
    ) -> Iterator[CheckFinding]:
        if damaged:
            share = len(damaged) / total
            yield CheckFinding(
                "warning" if share >= self.warning_share else "info",
                f"{part_of(len(damaged), total, 'prompts', words)}.",
                (advice,),
                tuple(f"{row.location}: {row.prompt[:80]!r}" for row in damaged[:_SHOWN]),
                {"share": share},
            )


_LOST_LETTERS = re.compile(r"(?<=[a-z])\?+(?=[a-z])")
_CODE = re.compile(r"`[^`]*`")
_NO_WORD = re.compile(r"https?://|www\.|[=&{}\[\]\\*+|^$()]")
"""Parts of addresses, patterns and code, in which a question mark stands between letters."""
_ASKS_FOR_LETTERS = re.compile(
    r"(?:missing|unknown|hidden|blank|any) (?:letter|character)|crossword|hangman|wildcard|glob\b|"
    r"\bpattern|question marks?\b|[\"'`(]\?[\"'`)]",
    re.IGNORECASE,
)
"""Puzzles in which a question mark stands for a letter."""
_MIN_LOST = 2


def _has_lost_letters(text: str) -> bool:
    """Whether letters were replaced by question marks, as in `pr?f?r?`."""
    if "?" not in text or _ASKS_FOR_LETTERS.search(text):
        return False
    asked = (word for word in _CODE.sub(" ", text).split() if "?" in word)
    words = [word for word in asked if not _NO_WORD.search(word)]
    return sum(len(_LOST_LETTERS.findall(word)) for word in words) >= _MIN_LOST


def is_decomposed(text: str) -> bool:
    """Whether letters and their accents are separate characters.

    The composed form of Devanagari and Hebrew has some letters in two characters, and is longer.
    """
    return len(unicodedata.normalize("NFC", text)) < len(text)


def _is_odd(row: PromptRow) -> bool:
    """Whether an answer has characters that no keyboard of its prompt's language has."""
    answer = row.answer or ""
    return bool(
        _INVISIBLE.search(answer)
        or (_DIRECTION.search(answer) and not _has_right_to_left(row))
        or (_WIDE.search(answer) and not _WIDE.search(row.prompt) and not _is_eastern(answer))
    )


def _is_eastern(text: str) -> bool:
    """Whether most characters are of a script whose sentences contain full-width signs."""
    return len(_EASTERN.findall(text)) > len(text) / 2


def _is_code(text: str, at: int) -> bool:
    """Whether the line before a place is code, whose braces name its own variables."""
    return bool(_CODE_BEFORE.search(text[text.rfind("\n", 0, at) + 1 : at]))


def _has_right_to_left(row: PromptRow) -> bool:
    """Whether a row has letters that are written from right to left."""
    letters = (letter for text in (row.answer or "", *row.texts()) for letter in text)
    return any(
        letter.isalpha() and unicodedata.bidirectional(letter) in _FROM_THE_RIGHT
        for letter in letters
    )


def _without_numbers(rows: Sequence[PromptRow]) -> list[PromptRow]:
    """Prompts with holes in the place of the numbers of other prompts."""
    return [rows[at] for at in lost_numbers(["\n".join(row.texts()) for row in rows])]


def _without_value(rows: Sequence[PromptRow]) -> list[PromptRow]:
    """Prompts with a line `Label: nan`, if other prompts have another value behind this label."""
    values: dict[str, list[str]] = defaultdict(list)
    empty: dict[str, list[tuple[PromptRow, str]]] = defaultdict(list)
    objects = []
    for row in rows:
        texts = row.texts()
        objects += [row] if any(_OBJECT.search(text) for text in texts) else []
        for match in (each for text in texts for each in _FIELD.finditer(text)):
            value = match["value"].strip()
            if value in _NO_VALUES or value in _NO_TEXTS:
                empty[match["label"]].append((row, value))
            else:
                values[match["label"]].append(value)
    damaged = []
    for label, found in empty.items():
        others = values[label]
        is_text = bool(others) and median(map(len, others)) >= _MIN_TEXT
        if len(set(others)) > 1:
            damaged += [
                row
                for row, value in found
                if value in _NO_VALUES
                or (is_text and not (value in EMPTY_OBJECTS and are_objects(others)))
            ]
    return list({id(row): row for row in (*objects, *damaged)}.values())


def _written_messages(context: PreflightContext) -> list[PromptRow]:
    """Prompts that are messages as text. The reader of CSV files restores them; trainers do not."""
    from_cells = context.table.suffix in _TEXT_TABLES and context.framework != "grpodoctor"
    return [
        row
        for row in context.rows
        if (row.messages and from_cells) or any(is_written_object(text) for text in row.texts())
    ]


_BYTE = (
    "[\u0080-\u00bf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d"
)
_BYTE += "\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178]"
"""The bytes 0x80 to 0xBF, read as Latin-1 or Windows-1252."""
_MISREAD = re.compile(f"[\u00c2\u00c3]{_BYTE}|[\u00e2-\u00e9]{_BYTE}{{2}}|\ufffd")
"""Characters of two or three bytes in UTF-8, each byte read as a character."""


def _is_misread(text: str) -> bool:
    """Whether UTF-8 was decoded as Latin-1 or Windows-1252, or bytes were replaced."""
    return bool(_MISREAD.search(text))
