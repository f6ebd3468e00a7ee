"""Other ways to write a correct answer, which a sound reward function accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.texts.normal_form import number_of
from grpodoctor.preflight.texts.units import last_unit

REASONING = "First, I write down what is given. Then I work it out step by step.\n"
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_CODE = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")
"""Letters next to digits: a code, in which case may count."""
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
REASONING_KIND = "reasoning before it"
_MAX_LETTERS = 100
"""A longer answer is a text or a program, in which white space and case may count."""

Variant = Callable[[str, str, str], str | None]
"""A response, from the format, the answer and the prompt; None if the variant does not apply."""


def response_variants(answer_format: str) -> Mapping[str, Variant]:
    """The kinds of other spellings, for answers in a format."""
    variants: dict[str, Variant] = {
        "white space": _spaced,
        "case": _other_case,
        "a unit": _with_unit,
        "LaTeX spelling": _other_latex,
        "another order": _other_order,
        "a semicolon": _other_end,
    }
    if answer_format.strip().startswith("{answer}"):
        # A format that has words before the answer was already tried with them.
        variants[REASONING_KIND] = _after_reasoning
    return variants


def variant_of(variant: Variant, answer_format: str, answer: str, prompt: str = "") -> str | None:
    """A response with another spelling; None if the variant does not apply to the answer."""
    is_long = len(answer) > _MAX_LETTERS or "\n" in answer.strip()
    if is_long and (variant is not _after_reasoning or not _is_prose(answer)):
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
    before = "" if form.partition("{answer}")[0].endswith(" ") else " "
    return format_answer(form, f"{before}{answer.strip()} ") + "\n"


def _other_case(form: str, answer: str, _: str) -> str | None:
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
    """Several roots or solutions in the opposite order, unless the prompt names an order."""
    parts = [part.strip() for part in answer.split(",")]
    if len(parts) < 2 or None in map(number_of, parts) or _ORDERED.search(prompt):
        return None
    changed = ", ".join(reversed(parts))
    return format_answer(form, changed) if _SET.search(prompt) and parts[::-1] != parts else None


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
