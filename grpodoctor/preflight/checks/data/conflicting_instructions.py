"""DAT131."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.errors import GrpodoctorError
from grpodoctor.preflight.answers.completions.unasked_spellings import ANSWER_ONLY
from grpodoctor.preflight.answers.requested.requested_formats import ask_for_reasons, tag_layout
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.template.added_text import added_text
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import text_of
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_MAX_ROWS = 400
_THOUGHT_FIRST = re.compile(
    r"\b(?:then|finally|after that|afterwards|at the end|end with|last line|finish)\b|<think",
    re.IGNORECASE,
)
"""Words after which "only" speaks of the place of the answer, not of the whole response."""


_IN_JSON = re.compile(r"\b(?:json|object)\b", re.IGNORECASE)


class ConflictingInstructions(Check):
    """Two parts of a prompt contradict each other.

    What it sees:
        Whether one part of a prompt asks for reasoning and another one for the answer alone, as in
        "think step by step" and "reply with the final answer only". The parts are the text that the
        chat template adds, the system message and the user's messages.

    Why it matters:
        The model follows one of the two, and which one changes from prompt to prompt. If the reward
        wants reasoning or a length, the rewards measure this choice. A template's own system
        message is not in the data and is easily overlooked.

    What to do:
        Keep one of the two instructions. Put a system message of your own into the data if the
        template adds one.

    When it is wrong:
        Reasoning may be asked for in thoughts, and the answer alone behind them. A system message
        that names a tag for the thought and one for the answer is therefore no conflict.

    References:
        The default system prompts of the templates of Qwen2.5 and others.
    """

    code: ClassVar[str] = "DAT131"
    name: ClassVar[str] = "conflicting-instructions"
    summary: ClassVar[str] = "Two parts of a prompt contradict each other."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the template's text, the system messages and the user's messages."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        rows = list(spread_rows(context.rows, _MAX_ROWS))
        users = ["\n".join(row.user_texts()) or row.prompt for row in rows]
        systems = [_system_of(row) for row in rows]
        if not any(systems):
            return tuple(_conflict(_added(context), users, "the template adds"))
        usual, count = Counter(filter(None, systems)).most_common(1)[0]
        if count <= len(rows) / 2:  # no single text that most prompts could contradict
            return ()
        return tuple(_conflict(usual, users, "the system message says"))


def _system_of(row: PromptRow) -> str:
    first = row.messages[0] if row.messages else {}
    return text_of(first.get("content")) if first.get("role") == "system" else ""


def _added(context: PreflightContext) -> str:
    """What the template writes before a question; empty without a template."""
    if context.files is None or not context.tokenizer.chat_template:
        return ""
    try:
        return added_text(context)
    except GrpodoctorError:  # DAT119 reports a template that refuses a question
        return ""


def _conflict(first: str, users: Sequence[str], who: str) -> Iterator[CheckFinding]:
    """One text that forbids what the others ask for, or asks for what they forbid."""
    if not first:
        return
    bare = [_forbids(text) for text in users]
    forbidden, asked = _forbids(first), ask_for_reasons(users)
    if forbidden and asked and sum(map(bool, bare)) <= len(users) / 2:
        yield _finding(f"Prompts ask for reasoning, and {who} {forbidden!r}.", first, users[0])
    elif tag_layout([first]):
        return  # the answer alone belongs into its tag, behind the thought in another one
    elif sum(map(bool, bare)) > len(users) / 2 and ask_for_reasons([first]) and not forbidden:
        quoted = next(filter(None, bare))
        if _IN_JSON.search(quoted):
            return  # a field of the object may hold the reasons
        yield _finding(
            f"Prompts say {quoted!r}, and {who} that the response reasons first.", first, users[0]
        )


def _forbids(text: str) -> str:
    """The words with which a text asks for the answer alone; empty if it does not."""
    if ask_for_reasons([ANSWER_ONLY.sub("", text)]):
        return ""
    for match in ANSWER_ONLY.finditer(text):
        sentence = re.split(r"(?<=[.!?\n])\s", text[: match.start()])[-1]
        if not _THOUGHT_FIRST.search(sentence):
            return match[0]
    return ""


def _finding(summary: str, first: str, second: str) -> CheckFinding:
    return CheckFinding(
        "warning",
        summary,
        ("Keep one of the two instructions: the one that the reward needs.",),
        (f"{' '.join(first.split())[:160]!r}", f"{' '.join(second.split())[-160:]!r}"),
    )
