"""DAT110."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from grpodoctor.errors import ModelError
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.chat_template import render_text
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_CONTENT = "grpodoctor"
_SYSTEM_CONTENT = "systemdoctor"
_QUESTION: tuple[dict[str, Any], ...] = ({"role": "user", "content": _CONTENT},)
_MIN_WORDS = 3
"""Fewer words are the name of a role."""


class AddedText(Check):
    """The chat template adds a system prompt or today's date.

    What it sees:
        Renders a question without a system message, for two dates. Reports a sentence before the
        question, or a difference between the dates. If the data has system messages, it reports a
        template that writes its own system prompt in addition.

    Why it matters:
        A default system prompt is in every prompt of the run, but not in an evaluation that renders
        prompts differently. If turns are rendered one by one, it repeats with every turn. A date
        changes every prompt at midnight: responses sampled yesterday are scored with a different
        prompt today, and caches, comparisons and resumed runs no longer use the same prompts.

    What to do:
        Put your own system message into the data. Pass a fixed date to the template everywhere, as
        date_string or under the name that the template uses.

    When it is wrong:
        The added text may be intended, and all code may render with the same template on the same
        day. The finding is therefore a note, except for a second system prompt.

    References:
        The templates of Qwen2.5 (a system prompt) and Llama 3.2 (today's date).
    """

    code: ClassVar[str] = "DAT110"
    name: ClassVar[str] = "template-adds-system-prompt"
    former_names: ClassVar[tuple[str, ...]] = ("template-adds-words",)
    summary: ClassVar[str] = "The chat template adds a system prompt or today's date."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Render a question for two dates."""
        if not context.tokenizer.chat_template:
            return SkippedCheck("the tokenizer has no chat template")
        return (*_date(context), *_system_prompt(context))


def _render_on(context: PreflightContext, date: str) -> str:
    """The question rendered on a date, which transformers passes to templates as a function."""
    macro = f"{{% macro strftime_now(format) %}}{date}{{% endmacro %}}"
    template = macro + context.tokenizer.get_chat_template()
    return render_text(context.tokenizer, _QUESTION, generation=True, chat_template=template)


def _date(context: PreflightContext) -> Iterator[CheckFinding]:
    if _render_on(context, "1 May 2001") != _render_on(context, "2 June 2002"):
        yield CheckFinding(
            "info",
            "The template writes today's date, so prompts change every day.",
            ("Pass a fixed date to the template, in engine and learner.",),
        )


def added_text(context: PreflightContext) -> str:
    """What the template writes before a question, without special tokens.

    Raises:
        ModelError: if the template refuses a question.
    """
    text = render_text(context.tokenizer, _QUESTION, generation=True).partition(_CONTENT)[0]
    ids = context.tokenizer(text, add_special_tokens=False)["input_ids"]
    for special in {context.token_text(token) for token in ids if token in context.special_tokens}:
        text = text.replace(special or "\n", "\n")
    return " ".join(text.split())


def _system_prompt(context: PreflightContext) -> Iterator[CheckFinding]:
    has_system_message = any(
        row.messages and row.messages[0].get("role") == "system" for row in context.rows
    )
    added = added_text(context)
    if len(re.findall(r"[^\W\d_]{2,}", added)) < _MIN_WORDS:
        return
    if has_system_message:
        yield from _two_system_prompts(context, added)
    else:
        yield CheckFinding(
            "info",
            f"The template adds text before the question: {added[:200]!r}.",
            ("Put a system message into the data unless every prompt should have this text.",),
        )


def _two_system_prompts(context: PreflightContext, added: str) -> Iterator[CheckFinding]:
    """Whether the template writes its own system prompt although a message has another one."""
    messages = ({"role": "system", "content": _SYSTEM_CONTENT}, *_QUESTION)
    try:
        text = render_text(context.tokenizer, messages, generation=True).partition(_CONTENT)[0]
    except ModelError:  # DAT119 reports it
        return
    words = [word for word in added.split() if word.isalpha() and len(word) > 2]
    if _SYSTEM_CONTENT in text and all(word in text for word in words):
        yield CheckFinding(
            "warning",
            f"Prompts get two system messages: the template adds {added[:120]!r}.",
            ("Remove one of them: the data's system messages, or the template's.",),
        )
