"""DAT116."""

from __future__ import annotations

import re
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_SHOWN = 3
_RENDERS_TEXT = frozenset({"grpodoctor"})
"""Frameworks that put text prompts into the chat template."""
_READS_PROMPT = frozenset({"trl"})
"""Frameworks whose column of prompts has this name: text of another column becomes a prompt there.
"""
_WRITTEN_DIALOGUE = re.compile(
    r"(?<![</])(?:assistant|answer|response|solution|output|\bA|model)\W{0,4}(?:<think>\s*)?$",
    re.IGNORECASE,
)
"""The end of a prompt that brings its own format for a base model."""


class TextPrompts(Check):
    """Text prompts bypass the chat template.

    What it sees:
        The model has a chat template, but the column `prompt` holds text instead of messages. TRL
        and OpenRLHF put messages into the template and pass text on as it is. Prompts that already
        contain the template, or end with their own "Assistant:", are not counted. With a config of
        TRL, text in another column is counted too, as TRL reads only `prompt`.

    Why it matters:
        The model continues the question instead of answering it. It writes no EOS token, responses
        run to the limit, and rewards are far below those of the same model in a chat.

    What to do:
        Store prompts as messages: [{"role": "user", "content": "…"}]. In OpenRLHF, set
        --apply_chat_template.

    When it is wrong:
        Your code may render the template itself, or you train a base model that has a template on
        which it was never trained.

    References:
        TRL's documentation of dataset formats: only conversational prompts are rendered.
    """

    code: ClassVar[str] = "DAT116"
    name: ClassVar[str] = "text-prompts-without-template"
    summary: ClassVar[str] = "Text prompts bypass the chat template."
    min_share: ClassVar[float] = 0.01
    """Share of rows from which the check reports; single rows do not change a run."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Count the rows whose prompt is bare text."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        if not context.tokenizer.chat_template:
            return SkippedCheck("the tokenizer has no chat template")
        if context.framework in _RENDERS_TEXT:
            return ()
        bare = [row for row in context.rows if _is_bare(context, row)]
        share = len(bare) / len(context.rows)
        if share < self.min_share:
            return ()
        return (
            CheckFinding(
                "warning",
                f"{part_of(len(bare), len(context.rows), 'prompts', 'are')} "
                "text; TRL and OpenRLHF do not "
                "apply the chat template.",
                ('Store prompts as messages: [{"role": "user", "content": "…"}].',),
                tuple(f"{row.location}: {row.prompt[:80]!r}" for row in bare[:_SHOWN]),
                {"share": share},
            ),
        )


def _is_bare(context: PreflightContext, row: PromptRow) -> bool:
    is_read = row.prompt_column == "prompt" or context.framework in _READS_PROMPT
    if row.messages or not is_read:
        return False
    specials = (text for token in context.special_tokens if (text := context.token_text(token)))
    has_template = any(text in row.prompt for text in specials if len(text) > 1)
    return not has_template and not _WRITTEN_DIALOGUE.search(row.prompt)
