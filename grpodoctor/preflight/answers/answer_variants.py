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
    }
    if answer_format.strip().startswith("{answer}"):
        # A format that has words before the answer was already tried with them.
        variants["reasoning before it"] = lambda form, answer, _: (
            REASONING + format_answer(form, answer)
        )
    return variants


def variant_of(variant: Variant, answer_format: str, answer: str, prompt: str = "") -> str | None:
    """A response with another spelling; None if the variant does not apply to the answer."""
    if len(answer) > _MAX_LETTERS or "\n" in answer.strip():
        return None
    return variant(answer_format, answer, prompt)


def _spaced(form: str, answer: str, _: str) -> str | None:
    if "\n" in form.rpartition("{answer}")[2].rstrip():
        return None  # a layout goes on in the next line
    return format_answer(form, f" {answer.strip()} ") + "\n"


def _other_case(form: str, answer: str, _: str) -> str | None:
    if _SYNTAX.search(answer) or _CODE.search(answer) or not _LETTERS.search(answer):
        return None
    changed = answer.upper() if answer != answer.upper() else answer.lower()
    return format_answer(form, changed) if changed != answer else None


def _with_unit(form: str, answer: str, prompt: str) -> str | None:
    """A number with the last unit of its prompt, or the word "units"."""
    if number_of(answer) is None:
        return None
    unit = f" {last_unit(prompt) or 'units'}"
    unit = f"\\text{{{unit}}}" if "\\boxed" in form else unit
    return format_answer(form, answer.strip() + unit)


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
