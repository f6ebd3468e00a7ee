"""Changes of a response that a reward must not notice.

Models end with a line break, fence JSON, and try an answer before they reject it. A correct
response stays correct with each of these changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from grpodoctor.preflight.answers.constructed_answers import THOUGHT, format_answer
from grpodoctor.preflight.answers.kinds.tool_calls import json_content
from grpodoctor.preflight.texts.normal_form import NUMBER, number_of

LAST_LINE_BREAK = "a line break behind it"
TEXT_BEHIND = "a sentence behind it"
REJECTED = "another answer that it tries and rejects before"
FENCED = "a code fence around the JSON"
INDENTED = "JSON on several lines"
DRAFT = "a draft in a code block before it"
GIVEN = "the numbers of the prompt before it"
_SENTENCE = "This follows from the steps above."
_FENCE = re.compile(r"```(\w*)\n\{answer\}\n```")
_ENDS_WITH = re.compile(
    r"\b(?:end|finish|conclude|close)s? (?:\w+ ){0,4}with\b|\b(?:last|final) line\b|\bat the end\b|"
    r"\bnothing (?:else|after)\b|\bonly\b|\balone\b|\bjust\b",
    re.IGNORECASE,
)
"""Instructions about the end of a response, behind which no sentence is asked for."""


_BARE = re.compile(r"\b(?:only|alone|just|nothing (?:else|before))\b", re.IGNORECASE)
"""Instructions to write the answer without a solution."""


_ONE_LINE = re.compile(r"\b(?:last|final|one|single|same) line\b", re.IGNORECASE)
"""Instructions to write the answer on one line, where it has neither fence nor line breaks."""


def harmless_changes(
    form: str, answer: str, wrong: str, prompt: str, *, reasons: bool
) -> Iterator[tuple[str, str]]:
    """Kinds of changes, and the correct response with each of them.

    Args:
        form: a rewarded format.
        answer: the correct answer.
        wrong: a wrong answer.
        prompt: the texts of the prompt.
        reasons: whether the prompts ask for reasoning before the answer.
    """
    text = format_answer(form, answer)
    yield LAST_LINE_BREAK, f"{text}\n"
    fence = None if "</" in form else _FENCE.search(form)
    content = json_content(answer)
    is_json = isinstance(content, dict)
    if (fence or "\\boxed" in form) and not _ENDS_WITH.search(prompt):
        yield TEXT_BEHIND, f"{text}\n{_SENTENCE}"
    if reasons and not fence and not is_json and "\n" not in answer.strip():
        rejected = f"I first try {wrong}. That does not fit, so I try again."
        if THOUGHT in form:
            yield REJECTED, text.replace(THOUGHT, rejected)
        else:
            yield REJECTED, f"{rejected}\n{text}"
    if given := _given(answer, prompt):
        yield GIVEN, f"{given}\n{text}"
    if is_json and form == "{answer}" and not _ONE_LINE.search(prompt):
        yield FENCED, f"```json\n{text}\n```"
        yield INDENTED, json.dumps(content, indent=2)
    if fence:
        draft = f"```{fence[1]}\n{wrong}\n```"
        yield DRAFT, f"A first draft, which is not right yet:\n{draft}\nThe result:\n{text}"


def _given(answer: str, prompt: str) -> str:
    """A line with the numbers of a prompt, as worked solutions begin; empty without numbers."""
    number = number_of(answer)
    if number is None or _BARE.search(prompt):
        return ""
    texts = dict.fromkeys(match[0] for match in NUMBER.finditer(prompt))
    others = [text for text in texts if number_of(text) not in (None, number)]
    return (
        f"{NEUTRAL} We are given {' and '.join(others[:_MOST_NUMBERS])}." if len(others) > 1 else ""
    )


NEUTRAL = "First I read the question."
"""A line without numbers: what it costs is no matter of numbers."""
_MOST_NUMBERS = 4
