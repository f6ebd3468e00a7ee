"""DAT105."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.chat_template import render_text
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_MAX_ROWS = 2000
_SHOWN = 5
_FAMILY_MARKS = (
    "[INST]", "<<SYS>>", "<|im_start|>", "<|start_header_id|>", "<|eot_id|>", "<start_of_turn>",
    "<|user|>", "<|assistant|>", "<|start_of_role|>", "<|turn>", "<|START_OF_TURN_TOKEN|>",
    "<\uff5cUser\uff5c>", "<|startoftext|>", "<|begin_of_text|>",
)  # fmt: skip
"""Control tokens of Llama, Mistral, ChatML, Gemma, Phi, GLM, Granite, Command R and DeepSeek."""
_OPENED = re.compile(
    r"\n\s*(?:assistant|AI|bot)\s*:\s*(?:<\w+>)?\s*$|\n#{2,3}\s*(?:assistant|response)\s*:?\s*$",
    re.IGNORECASE,
)
"""The opening of an assistant's turn in templates of base models, behind the question. A heading
for the answer is a part of many sound tasks."""
_LONGEST_OPENING = 100
"""Letters of it: the pattern takes quadratic time on long blank parts of a prompt."""
_OPENED_SHARE = 0.05
"""Share of prompts with it; single transcripts may be quoted on purpose."""
_WARNING_SHARE = 0.01
"""Share of prompts with control tokens from which the finding is a warning."""


class DoubleBos(Check):
    """Prompts start with two BOS tokens, or contain the chat template already.

    What it sees:
        Prompts whose token ids start with two BOS tokens, and prompts that already contain tokens
        of the chat template, so that the template is applied twice; and prompts with the
        text of a BOS, EOS or padding token inside, or with the marks of another family's template
        (`[INST]`), which this tokenizer reads as ordinary text; and user messages that end with the
        assistant's opening ("Assistant:", "### Response:"). Also notes that the template writes
        a BOS token while the tokenizer adds one to any text: tokenizing rendered text then gives
        two.

    Why it matters:
        Models are not trained on two BOS tokens or on a conversation inside a question. Code that
        renders to text and tokenizes that text, as the text interfaces of many engines do, gets one
        token more than code that renders to ids. Engine and learner then score the same response
        after different prompts.

    What to do:
        Store prompts without the template. Tokenize rendered text with `add_special_tokens=False`,
        or pass token ids.

    When it is wrong:
        Some prompts mention such tokens on purpose. The note is harmless if engine and learner do
        the same, as with most models of the Llama and Gemma families.

    References:
        transformers' documentation of chat templates, section on special tokens.
    """

    code: ClassVar[str] = "DAT105"
    name: ClassVar[str] = "double-bos-token"
    former_names: ClassVar[tuple[str, ...]] = ("doubled-begin-token",)
    summary: ClassVar[str] = "Prompts start with two BOS tokens, or contain the template already."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Check the first tokens of each prompt, and search it for tokens of the template."""
        rows = context.rows[:_MAX_ROWS]
        if not rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        return (
            *_two_bos_tokens(context, rows),
            *_rendered_prompts(context, rows),
            *_control_tokens(context, rows),
            *_foreign_marks(context, rows),
            *_opened_turns(context, rows),
            *_bos_from_tokenizer(context),
        )


def _two_bos_tokens(context: PreflightContext, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    bos = context.tokenizer.bos_token_id
    doubled = [row for row in rows if context.render(row)[:2] == [bos, bos]]
    if bos is not None and doubled:
        yield CheckFinding(
            "critical",
            f"{part_of(len(doubled), len(rows), 'prompts', 'start')} with two BOS tokens: "
            f"{_bos_token(context, bos)}.",
            ("Remove the BOS token from the prompts or from the template.",),
            tuple(row.location for row in doubled[:_SHOWN]),
        )
        return
    text = context.token_text(bos) if bos is not None else None
    begun = [row for row in rows if not row.messages and text and row.prompt.startswith(text)]
    if begun and list(context.tokenizer(begun[0].prompt)["input_ids"])[:2] == [bos, bos]:
        yield CheckFinding(
            "critical",
            f"{part_of(len(begun), len(rows), 'text prompts', 'start')} "
            f"with {text!r}, and the tokenizer adds "
            "a second BOS token.",
            ("Remove the BOS token from the prompts, or store prompts as messages.",),
            tuple(row.location for row in begun[:_SHOWN]),
        )


def _opened_turns(context: PreflightContext, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """User messages that end with the beginning of the assistant's turn, as plain text."""
    opened = [
        (row, opening[0].strip())
        for row in rows
        if row.messages
        and row.messages[-1]["role"] == "user"
        and (opening := _OPENED.search(row.prompt.rstrip()[-_LONGEST_OPENING:]))
    ]
    if context.tokenizer.chat_template and len(opened) > _OPENED_SHARE * len(rows):
        yield CheckFinding(
            "warning",
            f"{part_of(len(opened), len(rows), 'user messages', 'end')} "
            "with the assistant's opening, "
            f"{opened[0][1]!r}, which the template writes itself.",
            ("Remove it from the messages; the template begins the assistant's turn.",),
            tuple(row.location for row, _ in opened[:_SHOWN]),
            {"share": len(opened) / len(rows)},
        )


def _rendered_prompts(
    context: PreflightContext, rows: Sequence[PromptRow]
) -> Iterator[CheckFinding]:
    """Prompts that contain the special tokens with which the template starts a turn."""
    marks = _turn_marks(context)
    locations = [
        row.location
        for row in rows
        if any(mark in str(message["content"]) for message in row.conversation() for mark in marks)
    ]
    if locations:
        yield CheckFinding(
            "warning",
            f"{part_of(len(locations), len(rows), 'prompts', 'contain')} "
            "chat-template tokens, so the "
            "template is applied twice.",
            ("Store prompts without the template, as text or messages.",),
            tuple(locations[:_SHOWN]),
            {"share": len(locations) / len(rows)},
        )


def _control_tokens(context: PreflightContext, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Prompts with the text of a BOS, EOS or padding token inside; at the end it is DAT103."""
    turns = _turn_marks(context)
    names = {
        text
        for token in (*context.end_tokens, context.tokenizer.bos_token_id,
                      context.tokenizer.pad_token_id)
        if token in context.special_tokens and (text := context.decoded(token))
    }  # fmt: skip
    inside = [
        (row, name)
        for row in rows
        for name in names.difference(turns)
        if any(name in text.strip().strip(name) for text in row.texts())
    ]
    if inside:
        share = len({row.number for row, _ in inside}) / len(rows)
        yield CheckFinding(
            "warning" if share >= _WARNING_SHARE else "info",
            f"{part_of(len(inside), len(rows), 'prompts', 'contain')} "
            "control tokens as text, such as "
            f"{inside[0][1]!r}.",
            ("Remove them from the prompts: the tokenizer reads them as the end of a text.",),
            tuple(row.location for row, _ in inside[:_SHOWN]),
            {"share": share},
        )


def _foreign_marks(context: PreflightContext, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Prompts in the chat template of another model family, which are ordinary text here."""
    own = {context.token_text(token) for token in context.special_tokens}
    template = str(context.tokenizer.chat_template or "")
    foreign = [mark for mark in _FAMILY_MARKS if mark not in own and mark not in template]
    inside = [
        (row, mark) for row in rows for mark in foreign if any(mark in text for text in row.texts())
    ]
    located = {row.number: (row, mark) for row, mark in inside}
    share = len(located) / len(rows)
    if share >= _WARNING_SHARE:
        yield CheckFinding(
            "warning",
            f"{part_of(len(located), len(rows), 'prompts', 'contain')} "
            "the chat template of another model, "
            f"such as {inside[0][1]!r}.",
            ("Store prompts without a template, as messages; this model reads its marks as text.",),
            tuple(row.location for row, _ in list(located.values())[:_SHOWN]),
            {"share": share},
        )


def _turn_marks(context: PreflightContext) -> list[str]:
    """The special tokens with which the template starts a turn."""
    if not context.tokenizer.chat_template:
        return []
    empty_turn = render_text(context.tokenizer, [{"role": "user", "content": ""}])
    ids = context.tokenizer(empty_turn, add_special_tokens=False)["input_ids"]
    texts = {context.token_text(token) for token in ids if token in context.special_tokens}
    return [text for text in texts if text is not None]


def _bos_from_tokenizer(context: PreflightContext) -> Iterator[CheckFinding]:
    """Whether tokenizing rendered text adds a second BOS token."""
    bos = context.tokenizer.bos_token_id
    if bos is None or not context.tokenizer.chat_template:
        return
    text = render_text(context.tokenizer, context.rows[0].conversation(), generation=True)
    if list(context.tokenizer(text)["input_ids"])[:2] == [bos, bos]:
        yield CheckFinding(
            "info",
            f"The template and the tokenizer both add the BOS token {_bos_token(context, bos)}: "
            "tokenizing rendered text doubles it.",
            ("Tokenize rendered text with add_special_tokens=False, or pass token ids.",),
        )


def _bos_token(context: PreflightContext, bos: int) -> str:
    """The text and the id of the BOS token."""
    return f"{context.token_text(bos)!r} (id {bos})"
