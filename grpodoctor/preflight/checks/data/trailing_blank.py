"""DAT122."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_MAX_ROWS = 200
_SHOWN = 4
_WORDS = ("the", "is", "a", "we", "first")
"""Beginnings of a response, which nearly every vocabulary has with a blank before them."""


class TrailingBlank(Check):
    """Text prompts end with a blank that belongs to the next token.

    What it sees:
        Text prompts that no chat template follows and that end with a blank, with a tokenizer that
        joins a blank to the word behind it: `Answer: ` and `the` are other tokens than
        `Answer: the`.

    Why it matters:
        In its training the model saw the blank inside the next token. After a lone blank it has to
        continue with a token that it has seldom seen there: base models then answer worse, often
        with a second blank or a wrong word.

    What to do:
        Remove the blank at the end of the prompts.

    When it is wrong:
        Tokenizers that keep blanks as tokens of their own are not reported.

    References:
        FastEval issue 26 (a blank that the tokenizer joins to the next word); OpenCompass issue 928
        (a blank at the end of prompts may hurt the results).
    """

    code: ClassVar[str] = "DAT122"
    name: ClassVar[str] = "prompt-ends-with-blank"
    summary: ClassVar[str] = "Text prompts end with a blank that belongs to the next token."
    warning_share: ClassVar[float] = 0.5
    """Share of prompts from which the finding is a warning: a template wrote the blank."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Tokenize the ends of the prompts with a word behind them."""
        if context.tokenizer.chat_template:
            return SkippedCheck("the chat template follows each prompt")
        rows = [row for row in spread_rows(context.rows, _MAX_ROWS) if not row.messages]
        if not rows:
            return SkippedCheck("no text prompts were given", "add --prompts")
        found = [row for row in rows if row.prompt.endswith(" ") and _joins(context, row.prompt)]
        if not found:
            return ()
        share = len(found) / len(rows)
        return (
            CheckFinding(
                "warning" if share >= self.warning_share else "info",
                f"{part_of(len(found), len(rows), 'prompts', 'end')} "
                "with a blank that belongs to the next "
                "token.",
                ("Remove the blank at the end of each prompt.",),
                tuple(f"{row.location}: …{row.prompt[-40:]!r}" for row in found[:_SHOWN]),
                {"share": share},
            ),
        )


def _joins(context: PreflightContext, prompt: str) -> bool:
    """Whether the prompt's tokens are no longer the first ones with most words behind them."""
    end = prompt[-40:]
    alone = _ids(context, end)
    joined = sum(_ids(context, end + word)[: len(alone)] != alone for word in _WORDS)
    return joined > len(_WORDS) / 2


def _ids(context: PreflightContext, text: str) -> list[int]:
    return list(context.tokenizer(text, add_special_tokens=False)["input_ids"])
