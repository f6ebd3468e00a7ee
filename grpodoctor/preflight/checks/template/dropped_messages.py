"""DAT119."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.errors import ModelError
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.chat_template import render_text
from grpodoctor.preflight.inputs.columns import text_of
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import count_of

_MAX_ROWS = 200
_SHOWN = 4
_MIN_KEPT = 0.5
"""Share of the runs of words of a message that show that the template writes a part of it."""
_ROLES = ("system", "developer", "user")
"""Roles whose text belongs to every prompt. Templates drop earlier thoughts of the assistant."""


class DroppedMessages(Check):
    """The chat template leaves out parts of the prompt.

    What it sees:
        Renders each conversation and searches the result for the text of its system and user
        messages, and for the names of its tools. Reports the texts that the template does not
        write, line breaks that it removes, lists of parts that it writes as Python prints them,
        conversations that it refuses, and conversations for a tokenizer without a template.

    Why it matters:
        The instruction that asks for the answer format is often in the system message. Without it
        the model does not know the format, and correct answers earn nothing. The files look right.

    What to do:
        Put the text of the system message at the beginning of the user's message, or use a template
        that writes it.

    When it is wrong:
        A trainer that renders with its own template, or adds the tools itself, is not affected.

    References:
        The first templates of Gemma and Mistral refuse or ignore system messages.
    """

    code: ClassVar[str] = "DAT119"
    name: ClassVar[str] = "template-drops-messages"
    summary: ClassVar[str] = "The chat template leaves out messages or tools."
    min_share: ClassVar[float] = 0.01
    """Share of prompts from which the check reports."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Render conversations and search for their texts."""
        rows = [row for row in spread_rows(context.rows, _MAX_ROWS) if row.messages]
        if not context.tokenizer.chat_template:
            return _no_template(rows) or SkippedCheck("the tokenizer has no chat template")
        if not rows:
            return SkippedCheck("no prompt is a conversation", "store prompts as messages")
        return (
            *self._refused(context, rows),
            *self._parts(context, rows),
            *(tuple(self._messages(context, rows)) or self._joined(context, rows)),
            *self._tools(context, rows),
        )

    def _refused(
        self, context: PreflightContext, rows: Sequence[PromptRow]
    ) -> Iterator[CheckFinding]:
        """Conversations for which the template raises an exception."""
        refused = [(row, why) for row in rows if (why := _refusal(context, row))]
        if refused and len(refused) >= self.min_share * len(rows):
            row, why = refused[0]
            roles = ", ".join(dict.fromkeys(str(message["role"]) for message in row.messages))
            yield CheckFinding(
                "critical",
                f"The chat template refuses {len(refused)} of {len(rows)} prompts ({roles}).",
                (
                    "Put the text of a system message at the beginning of the user's message, let "
                    "user and assistant take turns, or use a template that writes all roles.",
                ),
                (why, *(row.location for row, _ in refused[:_SHOWN])),
                {"share": len(refused) / len(rows)},
            )

    def _parts(
        self, context: PreflightContext, rows: Sequence[PromptRow]
    ) -> Iterator[CheckFinding]:
        """Messages whose list of parts the template writes as Python prints a list."""
        printed = [row for row in rows if _prints_parts(context, row)]
        if printed and len(printed) >= self.min_share * len(rows):
            yield CheckFinding(
                "critical",
                f"The chat template does not read content that is a list of parts: {len(printed)} "
                f"of {len(rows)} prompts show its Python representation.",
                ("Store the content of each message as text, or use a template that reads parts.",),
                tuple(
                    f"{row.location}: {_rendered(context, row)[:120]!r}" for row in printed[:_SHOWN]
                ),
                {"share": len(printed) / len(rows)},
            )

    def _messages(
        self, context: PreflightContext, rows: Sequence[PromptRow]
    ) -> Iterator[CheckFinding]:
        dropped = [(row, roles) for row in rows if (roles := _dropped_roles(context, row))]
        if len(dropped) < self.min_share * len(rows) or not dropped:
            return
        role = Counter(role for _, roles in dropped for role in roles).most_common(1)[0][0]
        changes = Counter(_change(context, row, role) for row, _ in dropped)
        change, count = changes.most_common(1)[0]
        if change and count > len(dropped) / 2:
            yield CheckFinding(
                "critical",
                f"The chat template {change} in the {role} message of {count} of {len(rows)} "
                "prompts.",
                ("Remove the filter that changes the text from the template.",),
                tuple(
                    f"{row.location}: {_first_text(row, role)[-80:]!r}"
                    for row, _ in dropped[:_SHOWN]
                ),
                {"share": count / len(rows)},
            )
            return
        yield CheckFinding(
            "critical",
            f"The chat template drops the {role} message of {len(dropped)} of {len(rows)} prompts.",
            (f"Write the text of the {role} message in the template, or move it to the question.",),
            tuple(
                f"{row.location}: {_first_text(row, role)[:80]!r}" for row, _ in dropped[:_SHOWN]
            ),
            {"share": len(dropped) / len(rows)},
        )

    def _joined(
        self, context: PreflightContext, rows: Sequence[PromptRow]
    ) -> Iterator[CheckFinding]:
        """Messages of several lines that the template writes on one line."""
        joined = [row for row in rows if _joins_lines(_rendered(context, row), row)]
        if joined and len(joined) >= self.min_share * len(rows):
            yield CheckFinding(
                "critical",
                f"The chat template removes the line breaks of messages in {len(joined)} of "
                f"{len(rows)} prompts.",
                ("Remove the filter that changes the text from the template.",),
                tuple(f"{row.location}: {row.prompt[-80:]!r}" for row in joined[:_SHOWN]),
                {"share": len(joined) / len(rows)},
            )

    def _tools(
        self, context: PreflightContext, rows: Sequence[PromptRow]
    ) -> Iterator[CheckFinding]:
        dropped = [(row, names) for row in rows if (names := _dropped_tools(context, row))]
        if dropped and len(dropped) >= self.min_share * len(rows):
            yield CheckFinding(
                "warning",
                f"The chat template does not write the tools of {len(dropped)} of {len(rows)} "
                "prompts.",
                ("Use a template that writes tools, or describe them in the system message.",),
                tuple(
                    f"{row.location}: {', '.join(names)[:80]}" for row, names in dropped[:_SHOWN]
                ),
                {"share": len(dropped) / len(rows)},
            )


def _no_template(rows: Sequence[PromptRow]) -> tuple[CheckFinding, ...]:
    """Conversations that no template can render."""
    if not rows:
        return ()
    return (
        CheckFinding(
            "critical",
            f"The file has {count_of(len(rows), 'conversation')}, and the tokenizer has no chat "
            "template.",
            ("Store prompts as text, or set the tokenizer's chat_template.",),
            tuple(row.location for row in rows[:_SHOWN]),
        ),
    )


def _rendered(context: PreflightContext, row: PromptRow) -> str:
    """The prompt in the template, with its tools; empty if the template refuses it."""
    try:
        return _render(context, row)
    except ModelError:
        return ""


def _refusal(context: PreflightContext, row: PromptRow) -> str:
    """Why the template refuses a prompt; empty if it does not."""
    try:
        _render(context, row)
    except ModelError as error:
        return error.what
    return ""


def _render(context: PreflightContext, row: PromptRow) -> str:
    """Raises: ModelError: if the template refuses the prompt."""
    tools = row.columns.get("tools")
    options = {"tools": tools} if isinstance(tools, list) and tools else {}
    return render_text(context.tokenizer, row.conversation(), generation=True, **options)


def _prints_parts(context: PreflightContext, row: PromptRow) -> bool:
    """Whether a part of a message is in the prompt as the text of a Python dictionary."""
    contents = (message.get("content") for message in row.messages)
    lists = (content for content in contents if isinstance(content, list))
    parts = [part for content in lists for part in content if isinstance(part, dict) and part]
    rendered = _rendered(context, row) if parts else ""
    return any(str(part) in rendered for part in parts)


def _dropped_roles(context: PreflightContext, row: PromptRow) -> list[str]:
    rendered = _letters(_rendered(context, row))
    return [
        str(message["role"])
        for message in row.messages
        if rendered
        and message["role"] in _ROLES
        and _letters(text_of(message.get("content"))) not in rendered
    ]


def _joins_lines(rendered: str, row: PromptRow) -> bool:
    """Whether a system or user message has line breaks, and its rendered text has none."""
    texts = (text_of(each.get("content")) for each in row.messages if each["role"] in _ROLES)
    for text in texts:
        if text.strip() in rendered:  # the usual case, and faster than a pattern
            continue
        lines = [re.escape(line.strip()) for line in text.splitlines() if line.strip()]
        written = re.search(r"\s*".join(lines), rendered) if len(lines) > 1 else None
        if written and not re.search(r"[\n\r]", written[0]):
            return True
    return False


def _dropped_tools(context: PreflightContext, row: PromptRow) -> list[str]:
    names = _tool_names(row)
    rendered = _rendered(context, row) if names else ""
    return [name for name in names if rendered and name not in rendered]


def _letters(text: str) -> str:
    """Letters and digits alone: templates change white space and escape signs."""
    return "".join(re.findall(r"\w+", text))


def _change(context: PreflightContext, row: PromptRow, role: str) -> str:
    """What the template does to a message that it does not write as it is; empty if it drops it."""
    rendered, text = _rendered(context, row), _first_text(row, role)
    if _letters(text) in _letters(html.unescape(rendered)):
        return "escapes signs (< becomes &lt;)"
    if _letters(text).casefold() in _letters(rendered).casefold():
        return "changes the case of letters"
    own, written = _runs(text), _runs(rendered)
    return "changes or cuts the text" if len(own & written) > _MIN_KEPT * len(own) else ""


def _runs(text: str) -> set[tuple[str, ...]]:
    """All runs of three words of a text."""
    words = re.findall(r"\w+", text)
    return set(zip(words, words[1:], words[2:], strict=False))


def _first_text(row: PromptRow, role: str) -> str:
    texts = (text_of(each.get("content")) for each in row.messages if each["role"] == role)
    return next(texts, "")


def _tool_names(row: PromptRow) -> list[str]:
    tools = row.columns.get("tools")
    functions = [
        tool.get("function", tool) for tool in (tools if isinstance(tools, list) else [])
        if isinstance(tool, dict)
    ]  # fmt: skip
    return [
        function["name"]
        for function in functions
        if isinstance(function, dict) and isinstance(function.get("name"), str)
    ]
