"""Other ways to write a correct answer, which a sound reward function accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.kinds.tool_calls import json_content
from grpodoctor.preflight.texts.normal_form import number_of
from grpodoctor.preflight.texts.units import last_unit

REASONING = "First, I write down what is given. Then I work it out step by step.\n"
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_CODE = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")
"""Letters next to digits: a code, in which case may count."""
_IDENTIFIER = re.compile(r"[A-Z]{1,8}[-_.:#/]?\d[\w.:/-]*")
"""An identifier such as KB-00001, which is copied as it is."""
_SYNTAX = re.compile(r"[\\{}\[\]\"=_;<>`]")
"""Signs of formulas, JSON and code, in which case counts."""
_EQUALS = re.compile(r"(?<=\d) ?= ?(?=[-\d])|<<[^<>\n]*>>")
"""Equations and calculator notes of a worked solution."""
_QUANTITY = re.compile(r"(-?\d[\d.,]*)( ?)([^\W\d_]{1,3})")
"""A number with the symbol of a unit."""
_SET = re.compile(
    r"\b(?:roots|zeros|zeroes|solutions|all real|all values)\b|\bsolve\b", re.IGNORECASE
)
_ORDERED = re.compile(
    r"\border(?:ed)?\b|ascending|increasing|descending|decreasing|smallest|largest|sort",
    re.IGNORECASE,
)
_QUERY = re.compile(r"\s*(?:select|with|insert|update|delete)\b", re.IGNORECASE)
_MIN_PROSE_WORDS = 8
CASE = "case"
WHITE_SPACE = "white space"
REASONING_KIND = "reasoning before it"
WITHOUT_DECIMALS = "no decimals"
THOUSANDS = "thousands separators"
ASKED_DATE = "the date format of the prompt"
OTHER_JSON = "another layout of the JSON"
PROMPT_LAYOUT = "the white space of the prompt"
_BRACKETED = ("({answer})", "[{answer}]")
"""The place of an answer in brackets, within which models write no blanks."""
_ANY_ORDER = re.compile(
    r"\bin any order\b|\border (?:does not|doesn't|is not|isn't|will not) |"
    r"\b(?:regardless|irrespective|independent(?:ly)?) of (?:the |their )?order\b|\bunordered\b|"
    r"\ball (?:\w+ ){0,4}(?:that|which) apply\b",
    re.IGNORECASE,
)
"""Instructions under which the order of several labels does not matter."""
CASE_COUNTS = re.compile(
    r"\b(?:capitals?|capital letters|capitali[sz]ed?|upper ?case|lower ?case|small letters)\b",
    re.IGNORECASE,
)
"""Prompts in which the case is the task."""
CALLS_IN_CODE = re.compile(
    r"\b(?:print|console\.log|println!?|printf|puts)\(|\bdef \w+\(|^```\w*$|^>>> ", re.MULTILINE
)
"""Code in a prompt, whose output is a text of its own: None, inf and nan are values, and case
counts."""
_MIN_GRID_ROWS = 2
"""Lines of equally many signs from which an answer is a grid."""
_DATE_PATTERN = re.compile(
    r"\b(?:YYYY([-/.])MM\1DD|DD([-/.])MM\2YYYY|MM([-/.])DD\3YYYY)\b", re.IGNORECASE
)
_DATE = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)|(\d\d?)[./](\d\d?)[./](\d{4})")
"""An ISO date, or day, month and year."""
_YEAR_DIGITS = 4
_STOPPED = re.compile(r"((?:[^.\s]+ ){0,2}(?:[^.\s]*[^\W_]|-?\d+\.\d+))\.")
"""A number, or up to three words, with a full stop; abbreviations have more of them."""
_GROUPED = re.compile(r"-?(?<![\d,.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])")
_ZERO_DECIMALS = re.compile(r"(-?\d[\d,]*)\.0+")
_KEYBOARD_SIGNS = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u02bc", "'")
    | dict.fromkeys("\u201c\u201d\u201e", '"')
    | dict.fromkeys("\u00a0\u2009\u202f", " ")
)
_MAX_LETTERS = 100
"""A longer answer is a text or a program, in which white space and case may count."""

Variant = Callable[[str, str, str], str | None]
"""A response, from the format, the answer and the prompt; None if the variant does not apply."""


def response_variants(answer_format: str) -> Mapping[str, Variant]:
    """The kinds of other spellings, for answers in a format."""
    variants: dict[str, Variant] = {
        WHITE_SPACE: _spaced,
        CASE: _other_case,
        "a unit": _with_unit,
        "LaTeX spelling": _other_latex,
        "another order": _other_order,
        "a semicolon": _other_end,
        WITHOUT_DECIMALS: _whole_number,
        "plain signs": _plain_signs,
        THOUSANDS: _other_thousands,
        "no full stop": _without_stop,
        ASKED_DATE: _requested_date,
        OTHER_JSON: _other_json,
        PROMPT_LAYOUT: _prompt_layout,
    }
    if answer_format.strip().startswith("{"):  # the answer itself, or a JSON object with it
        # A format that has words before the answer was already tried with them.
        variants[REASONING_KIND] = _after_reasoning
    return variants


def variant_of(variant: Variant, answer_format: str, answer: str, prompt: str = "") -> str | None:
    """A response with another spelling; None if the variant does not apply to the answer."""
    is_long = len(answer) > _MAX_LETTERS or "\n" in answer.strip()
    may_be_long = variant in (_other_json, _prompt_layout) or (
        variant is _after_reasoning and _is_prose(answer)
    )
    if is_long and not may_be_long:
        return None
    return variant(answer_format, answer, prompt)


def _after_reasoning(form: str, answer: str, _: str) -> str:
    return REASONING + format_answer(form, answer)


def _is_prose(answer: str) -> bool:
    """Whether a long answer is sentences, and no program, formula or data."""
    return len(answer.split()) >= _MIN_PROSE_WORDS and not _SYNTAX.search(_EQUALS.sub("", answer))


def _spaced(form: str, answer: str, _: str) -> str | None:
    if "\n" in form.rpartition("{answer}")[2].rstrip():
        return None  # a layout goes on in the next line
    if any(place in form for place in _BRACKETED):
        return format_answer(form, answer.strip()) + "\n"
    before = "" if form.partition("{answer}")[0].endswith(" ") else " "
    return format_answer(form, f"{before}{answer.strip()} ") + "\n"


def _other_case(form: str, answer: str, prompt: str) -> str | None:
    if CASE_COUNTS.search(prompt) or CALLS_IN_CODE.search(prompt):
        return None
    if _IDENTIFIER.fullmatch(answer.strip()):
        return None
    if _SYNTAX.search(answer) or _CODE.search(answer) or not _LETTERS.search(answer):
        return None
    changed = answer.upper() if answer != answer.upper() else answer.lower()
    return format_answer(form, changed) if changed != answer else None


def _with_unit(form: str, answer: str, prompt: str) -> str | None:
    """A number with the last unit of its prompt, or the word "units".

    A number that has a unit gets or loses the space before it.
    """
    if (quantity := _QUANTITY.fullmatch(answer.strip())) is not None:
        space = "" if quantity[2] else " "
        return format_answer(form, f"{quantity[1]}{space}{quantity[3]}")
    if number_of(answer) is None:
        return None
    unit = f" {last_unit(prompt) or 'units'}"
    unit = f"\\text{{{unit}}}" if "\\boxed" in form else unit
    return format_answer(form, answer.strip() + unit)


def _other_order(form: str, answer: str, prompt: str) -> str | None:
    """Several roots, solutions or labels in the opposite order, unless the prompt names an order.

    Roots are a set; labels are one if the prompt says that any order is right.
    """
    content = json_content(answer)
    if isinstance(content, Mapping):  # its commas separate fields, see "another layout of JSON"
        return None
    is_json = isinstance(content, list)
    parts = content if is_json else [part.strip() for part in answer.split(",")]
    if len(parts) < 2 or parts[::-1] == parts:
        return None
    are_roots = not is_json and None not in map(number_of, parts)
    is_set = are_roots and _SET.search(prompt) and not _ORDERED.search(prompt)
    if not is_set and not _ANY_ORDER.search(prompt):
        return None
    changed = json.dumps(parts[::-1], ensure_ascii=False) if is_json else ", ".join(parts[::-1])
    return format_answer(form, changed)


def _whole_number(form: str, answer: str, _: str) -> str | None:
    """A number without the decimals that a table gave it: 42 for 42.0."""
    number = _ZERO_DECIMALS.fullmatch(answer.strip())
    return format_answer(form, number[1]) if number else None


def _plain_signs(form: str, answer: str, _: str) -> str | None:
    """An answer with the signs of a keyboard in the place of a printer's: -5 for \u22125."""
    changed = answer.translate(_KEYBOARD_SIGNS)
    return format_answer(form, changed) if changed != answer else None


def _other_thousands(form: str, answer: str, prompt: str) -> str | None:
    """1,234 without its comma; 1234 with one, if the prompt writes numbers so."""
    text = answer.strip()
    if _GROUPED.fullmatch(text):
        return format_answer(form, text.replace(",", ""))
    is_usual = re.fullmatch(r"-?\d{4,12}", text) and _GROUPED.search(prompt)
    return format_answer(form, f"{int(text):,}") if is_usual else None


def _without_stop(form: str, answer: str, _: str) -> str | None:
    """A number or a few words without the full stop of a sentence."""
    short = _STOPPED.fullmatch(answer.strip())
    return format_answer(form, short[1]) if short else None


def _requested_date(form: str, answer: str, prompt: str) -> str | None:
    """A date in the order that the prompt asks for, such as DD/MM/YYYY."""
    asked, given = _DATE_PATTERN.search(prompt), _DATE.fullmatch(answer.strip())
    if not (asked and given):
        return None
    parts = [part for part in given.groups() if part]
    year, month, day = parts if len(parts[0]) == _YEAR_DIGITS else parts[::-1]
    values = {"Y": year, "M": month.zfill(2), "D": day.zfill(2)}
    changed = re.sub(
        r"([YMD])\1+", lambda match: values[match[1].upper()], asked[0], flags=re.IGNORECASE
    )
    return format_answer(form, changed) if changed != answer.strip() else None


def _other_json(form: str, answer: str, _: str) -> str | None:
    """A JSON object with its keys in the opposite order and without blanks."""
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not content:
        return None
    changed = json.dumps(dict(reversed(content.items())), separators=(",", ":"))
    return format_answer(form, changed) if changed != answer.strip() else None


def _prompt_layout(form: str, answer: str, prompt: str) -> str | None:
    """The rows of a grid with the blanks that the prompt's grid of the same size has, or without.

    A model answers in the layout that it was shown.
    """
    rows = answer.strip().split("\n")
    cells = [len("".join(row.split())) for row in rows]
    shown = prompt.strip().split("\n")
    if len(rows) < _MIN_GRID_ROWS or len(set(cells)) != 1:
        return None
    for start in range(len(shown) - len(rows) + 1):
        part = [line.strip() for line in shown[start : start + len(rows)]]
        if [len("".join(line.split())) for line in part] == cells:
            changed = "\n".join(map(_spaced_like, part, rows))
            return format_answer(form, changed) if changed != answer.strip() else None
    return None


def _spaced_like(line: str, row: str) -> str:
    """The signs of a row with the white space of a line."""
    signs = iter("".join(row.split()))
    return "".join(sign if sign.isspace() else next(signs) for sign in line)


def _other_end(form: str, answer: str, _: str) -> str | None:
    """A query with a semicolon, or without its own."""
    text = answer.strip()
    if not _QUERY.match(text):
        return None
    return format_answer(form, text[:-1] if text.endswith(";") else f"{text};")


def _other_latex(form: str, answer: str, _: str) -> str | None:
    changed = answer.replace("\\frac", "\\dfrac") if "\\frac" in answer else answer
    if "\\" in changed and "\\ " not in changed:
        changed = re.sub(r"(?<=[\d}])(?=\\(?:pi|sqrt|text)\b)", r"\\,", changed)
    return format_answer(form, changed) if changed != answer else None


def asked_formats(prompts: Sequence[str]) -> dict[str, str]:
    """The names and marks of the answer formats that most prompts ask for."""
    on_lines = sum("<answer>\n" in prompt for prompt in prompts) > len(prompts) / 2
    tags = "tags on lines" if on_lines else "tags"
    marks = {"boxed": "\\boxed", "hashes": "####", tags: "<answer>"}
    return {
        name: mark
        for name, mark in marks.items()
        if sum(mark in prompt for prompt in prompts) > len(prompts) / 2
    }
