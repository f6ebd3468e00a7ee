"""DAT132."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck

_MAX_ROWS = 500
_MAX_LETTERS = 20_000
_SHOWN = 6
_HARMLESS = frozenset(
    "\u2018\u2019\u201c\u201d\u2026\u2013\u2014\u2010\u2011\u00a0\ufb01\ufb02\u00ad"
)
"""Typographic signs whose plain forms say the same."""


class ChangedCharacters(Check):
    """The tokenizer changes or loses characters of the prompts.

    What it sees:
        Prompts whose tokens decode to other text: characters that the tokenizer lacks, capitals
        that it lowers, and characters that it brings into another form, such as superscripts.
        White space and typographic signs are not compared, except that all line breaks of a prompt
        are lost.

    Why it matters:
        The model reads another prompt than the data has: 5\u00b2 becomes 52. Responses pass the
        same tokenizer, so an answer with such a character cannot be written nor rewarded.

    What to do:
        Use the model's own tokenizer, or write the characters in another way, such as x^2.

    When it is wrong:
        The changed characters do not matter for the task.

    References:
        tokenizers, normalizers (NFKC, Lowercase).
    """

    code: ClassVar[str] = "DAT132"
    name: ClassVar[str] = "tokenizer-changes-characters"
    summary: ClassVar[str] = "The tokenizer changes or loses characters of the prompts."
    warning_share: ClassVar[float] = 0.01
    """Share of the prompts from which the finding is a warning."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Encode and decode the prompts."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        rows = list(spread_rows(context.rows, _MAX_ROWS))
        changed, joined, signs = [], [], dict[str, str]()
        for row in rows:
            text = "\n".join(row.texts())[:_MAX_LETTERS]
            decoded = _decoded(context, text)
            joined += [row] if "\n" in text.strip() and _loses_lines(row, decoded) else []
            if _letters(text) != _letters(decoded):
                found = _changed_signs(context, text)
                signs |= found
                changed += [row] if found else []
        lines = tuple(self._joined(joined, len(rows)))
        share = len(changed) / len(rows)
        if not changed:
            return lines
        shown = ", ".join(f"{one!r} becomes {new!r}" for one, new in list(signs.items())[:_SHOWN])
        return (
            CheckFinding(
                "warning" if share >= self.warning_share else "info",
                f"The tokenizer changes characters of {len(changed)} of {len(rows)} prompts: "
                f"{shown}.",
                (
                    "Use the model's own tokenizer, or write these characters in another way, such "
                    "as x^2.",
                ),
                tuple(row.location for row in changed[:_SHOWN]),
                {"share": share},
            ),
            *lines,
        )

    def _joined(self, joined: Sequence[PromptRow], total: int) -> Iterator[CheckFinding]:
        """Prompts of several lines that come back on one."""
        if joined:
            share = len(joined) / total
            yield CheckFinding(
                "warning" if share >= self.warning_share else "info",
                f"The tokenizer loses the line breaks of {len(joined)} of {total} prompts.",
                ("Use the model's own tokenizer: its normalizer removes white space.",),
                tuple(row.location for row in joined[:_SHOWN]),
                {"share": share},
            )


def _loses_lines(row: PromptRow, decoded: str) -> bool:
    """Whether a message has line breaks, and the decoded text has none at all."""
    return any("\n" in text.strip() for text in row.texts()) and "\n" not in decoded


def _decoded(context: PreflightContext, text: str) -> str:
    ids = context.tokenizer(text, add_special_tokens=False)["input_ids"]
    return str(
        context.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


def _letters(text: str) -> str:
    """A text in composed form, without white space and typographic signs."""
    text = re.sub(r"\s", "", unicodedata.normalize("NFC", text))
    return "".join(sign for sign in text if sign not in _HARMLESS)


def _changed_signs(context: PreflightContext, text: str) -> dict[str, str]:
    """Characters that come back as others, with these."""
    signs = {}
    for sign in dict.fromkeys(_letters(text)):
        decoded = _letters(_decoded(context, f"a {sign} b"))
        middle = decoded.removeprefix("a").removesuffix("b")
        if decoded != f"a{sign}b" and middle != sign:
            signs[sign] = middle
    return signs
