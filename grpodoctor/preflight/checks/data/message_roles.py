"""DAT121."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import text_of
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import count_of, part_of

_SHOWN = 4
_KNOWN = frozenset({
    "system", "developer", "user", "assistant", "model", "tool", "function", "ipython",
    "observation", "environment",
})  # fmt: skip
"""Roles that the templates of public models have."""

_MODELS = frozenset({"assistant", "model"})
_BEFORE_ALL = frozenset({"system", "developer"})


class MessageRoles(Check):
    """Messages have a role or a layout that trainers and chat templates do not know.

    What it sees:
        Conversations in the layout of ShareGPT (`from` and `value` in place of `role` and
        `content`), and roles such as human or gpt that neither the usual templates nor this model's
        template mention. Also several messages of the user in a row, without an answer between
        them, above all if the earlier ones are the questions of other rows; and conversations that
        begin with the assistant, where most begin with the user.

    Why it matters:
        Most templates write any role as it is: the model sees `<|im_start|>human`, which it has
        never seen, and answers worse than it can. TRL and verl do not take messages in ShareGPT's
        layout for a conversation.

    What to do:
        Rename the roles to system, user and assistant, and the keys to role and content.

    When it is wrong:
        A model that was trained with roles of its own, whose template writes them unchanged.

    References:
        TRL's documentation of dataset formats describes the conversational format.
    """

    code: ClassVar[str] = "DAT121"
    name: ClassVar[str] = "unknown-message-roles"
    summary: ClassVar[str] = "Messages have roles or keys that chat templates do not know."
    min_share: ClassVar[float] = 0.01
    """Share of conversations with several user messages in a row, or without the user's first one,
    from which they are reported."""
    most_begun: ClassVar[float] = 0.5
    """Share of conversations up to which a beginning by the assistant is the exception: files of
    greetings begin with one in each row."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the roles with those of templates."""
        rows = [row for row in context.rows if row.messages]
        if not rows:
            return SkippedCheck("no prompt is a conversation", "store prompts as messages")
        return (
            *self._mixed_layouts(rows, len(context.rows)),
            *self._share_gpt(rows),
            *self._unknown_roles(context, rows),
            *self._several_questions(rows),
            *self._begins_with_answer(rows),
        )

    def _mixed_layouts(self, rows: list[PromptRow], total: int) -> Iterator[CheckFinding]:
        """A file with conversations and texts: trainers look at the first row only."""
        texts = total - len(rows)
        if texts:
            yield CheckFinding(
                "warning",
                f"The file mixes {count_of(len(rows), 'conversation')} and "
                f"{count_of(texts, 'text')}.",
                ("Store all prompts in one layout: trainers detect it from the first row.",),
                (rows[0].location,),
            )

    def _several_questions(self, rows: list[PromptRow]) -> Iterator[CheckFinding]:
        """Messages of the user that follow each other."""
        found = [row for row in rows if len(_unanswered(row)) > 1]
        if len(found) < self.min_share * len(rows) or not found:
            return
        questions = {row.prompt for row in rows}
        of_others = [
            row for row in found if any(text in questions for text in _unanswered(row)[:-1])
        ]
        is_nested = len(of_others) > len(found) / 2
        yield CheckFinding(
            "warning" if is_nested else "info",
            f"{part_of(len(found), len(rows), 'conversations', 'have')} "
            "several user messages in a row"
            f"{', earlier ones from other rows' if is_nested else ''}.",
            (
                "Make a new list of messages for each row: the same list was extended.",
                "Check that no assistant message is missing between user messages.",
            )[0 if is_nested else 1 :],
            tuple(
                f"{row.location}: {count_of(len(_unanswered(row)), 'message')}"
                for row in found[:_SHOWN]
            ),
            {"share": len(found) / len(rows)},
        )

    def _begins_with_answer(self, rows: list[PromptRow]) -> Iterator[CheckFinding]:
        """Conversations that the assistant begins, where most of the file begins with the user."""
        found = [row for row in rows if _first_speaker(row) in _MODELS]
        share = len(found) / len(rows)
        if not self.min_share <= share <= self.most_begun:
            return
        yield CheckFinding(
            "warning",
            f"{part_of(len(found), len(rows), 'conversations', 'begin')} "
            "with a message of the assistant.",
            ("Check whether the user's first message is missing, for example cut to a length.",),
            tuple(
                f"{row.location}: {text_of(row.messages[0].get('content'))[:80]!r}"
                for row in found[:_SHOWN]
            ),
            {"share": share},
        )

    def _share_gpt(self, rows: list[PromptRow]) -> Iterator[CheckFinding]:
        others = [row for row in rows if _is_share_gpt(row)]
        if others:
            yield CheckFinding(
                "warning",
                f"{part_of(len(others), len(rows), 'conversations', 'have')} "
                "ShareGPT's keys from and value.",
                ("Rename the keys to role and content, human to user and gpt to assistant.",),
                tuple(row.location for row in others[:_SHOWN]),
                {"share": len(others) / len(rows)},
            )

    def _unknown_roles(
        self, context: PreflightContext, rows: list[PromptRow]
    ) -> Iterator[CheckFinding]:
        template = str(context.tokenizer.chat_template or "") if context.files else ""
        unknown: Counter[str] = Counter()
        found = []
        for row in rows:
            roles = {str(message["role"]) for message in row.messages} - _KNOWN
            foreign = {role for role in roles if f"'{role}'" not in template.replace('"', "'")}
            unknown.update(foreign)
            if foreign:
                found.append(row)
        if found:
            (role, _), *_ = unknown.most_common(1)
            yield CheckFinding(
                "warning",
                f"{part_of(len(found), len(rows), 'conversations', 'have')} "
                f"the role {role!r:.40}, which the "
                "chat template does not know.",
                ("Rename the roles to system, user and assistant.",),
                tuple(f"{row.location}: {row.prompt[:80]!r}" for row in found[:_SHOWN]),
                {"share": len(found) / len(rows)},
            )


def _unanswered(row: PromptRow) -> list[str]:
    """The longest run of the user's messages without another message between them."""
    longest: list[str] = []
    current: list[str] = []
    for message in row.messages:
        current = [*current, text_of(message.get("content"))] if message["role"] == "user" else []
        longest = max(longest, current, key=len)
    return longest


def _is_share_gpt(row: PromptRow) -> bool:
    value = row.columns.get(row.prompt_column)
    entries = value if isinstance(value, list) else []
    return any(isinstance(entry, dict) and "from" in entry for entry in entries)


def _first_speaker(row: PromptRow) -> str:
    """The role of the first message behind the system messages; empty if there is none."""
    roles = (str(message["role"]) for message in row.messages)
    return next((role for role in roles if role not in _BEFORE_ALL), "")
