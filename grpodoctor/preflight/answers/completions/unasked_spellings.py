"""Other spellings of an answer that a model has no reason to write, because of its prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from grpodoctor.preflight.answers.answer_variants import CASE, REASONING_KIND, WITHOUT_DECIMALS
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.answers.requested.requested_formats import ask_for_reasons
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.texts.units import has_quantity

_MIN_CARRYING = 0.2
"""Share of reference answers with a unit that shows that the questions ask for quantities."""
_MOST_SHOWN = 12
"""Different answers of a closed set, which prompts can show."""
_ASKS_FOR_UNIT = re.compile(
    r"how (?:many|much|long|far|old|fast|tall|deep|heavy)|\$(?![A-Za-z{\\])|"
    r"[\u20ac%\u00b0]|degrees|\bcm\b|\bkm\b",
    re.IGNORECASE,
)
"""Questions for quantities; the numbers of a prompt with a unit say more."""
_FORMULA = re.compile(r"\$([^$\n]{0,300}?[^\s$])\$(?!\d)")
"""A formula in LaTeX; its dollar signs are no currency."""
_NUMBER_ONLY = re.compile(
    r"without (?:the |any |a )?units?|no units?\b|omit (?:the )?units?|units? (?:are|is) not|"
    r"(?:only|just|single|bare|plain|nothing but) (?:an? |the |one )?(?:final )?"
    r"(?:number|integer|figure|digits?|numerical value|numeric value|value)|"
    r"(?:number|integer|figure|digits|value) (?:only|alone)|as an? (?:integer|number|bare)|"
    r"(?:only|just|nothing but) the (?:final )?answer|"
    r"(?:write|put|give|enter|place|return|state) (?:the|a|your) (?:final |resulting )?"
    r"(?:number|integer) (?:in|into|inside|within|between)\b|"
    r"[<\[{](?:an? |the |your )?(?:final )?(?:number|integer|int|float|numeric value)[>\]}]",
    re.IGNORECASE,
)
_DECIMALS = re.compile(r"\bdecimals?\b|\btenths?\b|\bhundredths?\b|\.0\b", re.IGNORECASE)
"""Instructions about the digits behind the point."""
ANSWER_ONLY = re.compile(
    r"(?:only|just|nothing but|nothing except) (?:with |write |give |reply |output |return )?"
    r"(?:an? |the |one |your )?(?:\w+ ){0,2}(?:answer|number|integer|word|letter|option|name|value|"
    r"translation|code|query|result|json|object|date|yes|no)|"
    r"(?:answer|reply|respond) (?:only )?(?:with|in) "
    r"(?:exactly |just )?(?:one|a single) (?:word|number|letter)|nothing else|no explanation|"
    r"without (?:any )?(?:explanation|comment|reasoning)|do not explain|no other text|"
    r"(?:number|word|letter|name|answer|code|query|sentence|label|category|class|translation|json|"
    r"object|option|value|integer|date|result) (?:only|alone)\b|"
    r"(?:answer|reply|respond) with (?:the|your|an?|one) (?:\w+ ){1,6}(?:only|alone)\b|"
    r"(?:\u53ea|\u4ec5)(?:\u9700|\u80fd|\u9700\u8981)?"
    r"(?:\u8f93\u51fa|\u56de\u7b54|\u7ed9\u51fa|\u586b\u5199|\u8fd4\u56de)|"
    r"\b(?:antworte|gib|schreib|nenne)\w*\b[^.\n]{0,30}\b(?:nur|ausschlie\u00dflich)\b|"
    r"\b(?:r\u00e9pond|donne|\u00e9cri)\w*\b[^.\n]{0,30}\b(?:uniquement|seulement)\b|"
    r"\b(?:responde|contesta|escribe|rispondi|scrivi)\w*\b[^.\n]{0,30}"
    r"\b(?:solo|solamente|\u00fanicamente|soltanto)\b|"
    r"\b(?:responda|escreva)\b[^.\n]{0,30}\b(?:apenas|somente)\b",
    re.IGNORECASE,
)
"""Instructions that forbid reasoning in the response."""


def unasked_kinds(rows: Sequence[PromptRow], answers: ReferenceAnswers) -> frozenset[str]:
    """Other spellings that a model has no reason to write, because of what the prompts ask for."""
    unasked = set()
    carrying = sum(has_quantity(answer) for answer in answers.answers)
    numbers = sum(any(map(str.isdigit, answer)) for answer in answers.answers)
    quantities = carrying >= _MIN_CARRYING * len(answers.answers) or (
        numbers > len(answers.answers) / 2  # names and years, not quantities, are asked for
        and most_ask(rows, lambda text: _asks_for_quantity(_FORMULA.sub(r"\1", text)))
    )
    shown = _bare_number_in(answers.answer_format)
    if not quantities or most_ask(
        rows, lambda text: bool(_NUMBER_ONLY.search(text) or (shown and shown.search(text)))
    ):
        unasked.add("a unit")
    if _show_case(rows, answers.answers):
        unasked.add(CASE)
    is_object = not answers.answer_format.strip().startswith("{answer}")
    if most_ask(rows, lambda text: bool(ANSWER_ONLY.search(text))) or (
        is_object and not ask_for_reasons(["\n".join(row.texts()) for row in rows])
    ):
        unasked.add(REASONING_KIND)
    if most_ask(rows, lambda text: bool(_DECIMALS.search(text))):
        unasked.add(WITHOUT_DECIMALS)
    return frozenset(unasked)


def _show_case(rows: Sequence[PromptRow], answers: Sequence[str]) -> bool:
    """Whether most prompts show some of the answers in capitals and small letters as they are.

    "Answer Yes or No" shows the case that the model writes.
    """
    words = {answer for answer in answers if answer.isalpha() and answer != answer.casefold()}
    if not words or len(words) > _MOST_SHOWN:
        return False
    shown = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words)))})\b")
    return most_ask(rows, lambda text: bool(shown.search(text)))


def _bare_number_in(form: str) -> re.Pattern[str] | None:
    """An example of the answer's format with a number alone; None if nothing encloses the answer.

    A model writes the unit or leaves it out as the example in its prompt does.
    """
    before, _, after = form.partition("{answer}")
    opening, closing = before.rpartition("\n")[2].rpartition(" ")[2], re.split(r"\s", after)[0]
    if not opening.strip() or not closing.strip("."):
        return None
    number = r"\$?-?\d[\d.,]*"
    return re.compile(re.escape(opening) + number + re.escape(closing.rstrip(".")))


def _asks_for_quantity(text: str) -> bool:
    return bool(_ASKS_FOR_UNIT.search(text)) or has_quantity(text)


def most_ask(rows: Sequence[PromptRow], holds: Callable[[str], bool]) -> bool:
    """Whether something holds for most prompts, with their system messages."""
    return sum(holds("\n".join(row.texts())) for row in rows) > len(rows) / 2
