"""DAT110."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from grpodoctor.preflight.base import Check, Outcome, Remark, Skipped
from grpodoctor.preflight.context import Patient, text_of

_MARK = "grpodoctor"
_QUESTION: tuple[dict[str, Any], ...] = ({"role": "user", "content": _MARK},)
_FEWEST_WORDS = 3
"""Fewer are the names of a role."""


class TemplatesOwnWords(Check):
    """The chat template writes words that the data does not have.

    What it sees:
        A question without a system message is rendered, on two dates. What is rendered has a
        sentence before the question, or is another on the second date.

    Why it matters:
        A default system prompt is in every prompt of the run, and in none of an evaluation that
        renders in another way; rendered turn by turn it comes again with each turn. A date changes
        every prompt at midnight: what was sampled yesterday is scored after another prompt today,
        and caches, comparisons and resumed runs no longer speak of the same prompts.

    What to do:
        Write a system message of your own into the data. Give the template a fixed date, with
        date_string or whatever it calls it, on all sides.

    When it is wrong:
        It is meant to be like that, and all sides render with the same template on the same day:
        that is why it is a note.

    References:
        The templates of Qwen2.5 (a system prompt) and Llama 3.2 (today's date).
    """

    code: ClassVar[str] = "DAT110"
    name: ClassVar[str] = "template-adds-words"
    summary: ClassVar[str] = "The chat template writes words that the data does not have."

    def examine(self, patient: Patient) -> Outcome:
        """Render a question on two dates."""
        if not patient.tokenizer.chat_template:
            return Skipped("the tokenizer has no chat template")
        return (*_dated(patient), *_said(patient))


def _on(patient: Patient, day: str) -> str:
    """The question, rendered on a day: transformers gives a template today's by a function."""
    clock = f"{{% macro strftime_now(format) %}}{day}{{% endmacro %}}"
    template = clock + patient.tokenizer.get_chat_template()
    return text_of(patient.tokenizer, _QUESTION, generation=True, chat_template=template)


def _dated(patient: Patient) -> Iterator[Remark]:
    one, other = _on(patient, "1 May 2001"), _on(patient, "2 June 2002")
    if one != other:
        yield Remark(
            "info",
            "the template writes today's date: prompts are others tomorrow",
            ("give it a fixed date, on all sides",),
        )


def _said(patient: Patient) -> Iterator[Remark]:
    systems = any(row.messages and row.messages[0].get("role") == "system" for row in patient.rows)
    before = text_of(patient.tokenizer, _QUESTION, generation=True).partition(_MARK)[0]
    ids = patient.tokenizer(before, add_special_tokens=False)["input_ids"]
    for special in {patient.token_text(each) for each in ids if each in patient.specials}:
        before = before.replace(special or "\n", "\n")
    said = " ".join(before.split())
    if len(re.findall(r"[^\W\d_]{2,}", said)) >= _FEWEST_WORDS and not systems:
        yield Remark(
            "info",
            f"the template writes words of its own before the question: {said[:200]!r}",
            ("write a system message into the data, if these are not to be in every prompt",),
        )
