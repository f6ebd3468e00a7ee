"""DAT114."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.languages import asked_language, is_rather, language_of

_MAX_ROWS = 5000
_MIN_ROWS = 20
_SHOWN = 4
_MOST_WRONG = 0.8
"""Share of the answers that are in another language than the one that is asked for."""
_LANGUAGE_COLUMNS = frozenset({"language", "lang", "locale", "language_code"})


class MixedLanguages(Check):
    """A few prompts are in another language than the others.

    What it sees:
        The language of each prompt, by its script and its frequent words. Prompts that are too
        short to tell are not counted. A set is multilingual on purpose if no language has 80% of
        its prompts, or if a column names the language; this is a note. Also a few system messages
        in another language than their prompts, and answers in another language than the prompts ask
        for ("into German").

    Why it matters:
        The reward parser, the answer format and the held-out data are usually made for one
        language. Groups of the other prompts are all-incorrect, or the model learns to switch
        languages within a response.

    What to do:
        Remove the prompts in other languages, or name the language in a column and measure the
        reward of each.

    When it is wrong:
        Translation tasks, and sets that are multilingual in unequal shares.

    References:
        DeepSeek-R1, arXiv 2501.12948, section 2.3, on language mixing.
    """

    code: ClassVar[str] = "DAT114"
    name: ClassVar[str] = "mixed-languages"
    summary: ClassVar[str] = "A few prompts are in another language than the others."
    references: ClassVar[tuple[str, ...]] = ("arXiv 2501.12948",)
    main_share: ClassVar[float] = 0.8
    """Share of the most frequent language from which the set is meant to be in one language."""
    min_share: ClassVar[float] = 0.01
    """Share of other languages from which the finding is a warning: single rows are quotations."""
    min_rows: ClassVar[int] = 3

    def examine(self, context: PreflightContext) -> CheckResult:
        """Count the languages."""
        rows = list(spread_rows(context.rows, _MAX_ROWS))
        if other := _answers_in_another_language(rows):
            return (other,)
        if instructions := self._instructions(rows):
            return (instructions,)
        known = [(row, language) for row in rows if (language := _language(row))]
        if len(known) < _MIN_ROWS:
            return SkippedCheck("too few prompts have a known language", "pass more prompts")
        counts = Counter(language for _, language in known)
        main, most = counts.most_common(1)[0]
        others = [
            (row, language)
            for row, language in known
            if language != main and is_rather(row.prompt, language, main)
        ]
        if len(others) < max(self.min_rows, self.min_share * len(known)):
            return ()
        is_meant = most < self.main_share * len(known) or _names_language(rows)
        named = Counter(language for _, language in others)
        names = ", ".join(language for language, _ in named.most_common(3))
        return (
            CheckFinding(
                "info" if is_meant else "warning",
                f"Mixed languages: {len(others)} of {len(known)} prompts are in {names}, not in "
                f"{main}.",
                ("Remove these prompts, or name the language in a column and measure each.",),
                tuple(f"{row.location}: {language}" for row, language in others[:_SHOWN]),
                {"share": len(others) / len(known)},
            ),
        )

    def _instructions(self, rows: Sequence[PromptRow]) -> CheckFinding | None:
        """Some system messages in another language than their prompts, unlike the others."""
        first = [row for row in rows if row.messages and row.messages[0]["role"] == "system"]
        of_system = Counter(language_of(row.texts()[0]) for row in first)
        most = (1 - self.main_share) * len(first)
        other = [
            (row, language, own)
            for row in first
            if (language := language_of(row.texts()[0]))
            and (own := _language(row))
            and language != own
            and of_system[language] <= most
        ]
        if len(other) < max(self.min_rows, self.min_share * len(first)):
            return None
        if _names_language(rows):
            return None
        language, own = Counter(each[1:] for each in other).most_common(1)[0][0]
        return CheckFinding(
            "warning",
            f"Mixed languages: the system messages of {len(other)} of {len(first)} prompts are in "
            f"{language}, the prompts in {own}.",
            ("Write all instructions in one language.",),
            tuple(f"{row.location}: {row.texts()[0]!r:.80}" for row, *_ in other[:_SHOWN]),
            {"share": len(other) / len(first)},
        )


def _answers_in_another_language(rows: Sequence[PromptRow]) -> CheckFinding | None:
    """Answers in one language, where the prompts ask for another one."""
    pairs = [
        (row, asked, language)
        for row in rows
        if (asked := asked_language("\n".join(row.texts())))
        and (language := language_of(row.answer or ""))
    ]
    wrong = [
        (row, asked, language)
        for row, asked, language in pairs
        if language != asked and not language.startswith(asked)
    ]
    if len(pairs) < _MIN_ROWS or len(wrong) < _MOST_WRONG * len(pairs):
        return None
    row, asked, language = wrong[0]
    return CheckFinding(
        "warning",
        f"{len(wrong)} of {len(pairs)} answers are in {language}; the prompts ask for {asked}.",
        ("Check that prompts and answers were not exchanged; ask for the language of answers.",),
        (f"{row.location}: {row.answer!r:.100}",),
        {"share": len(wrong) / len(pairs)},
    )


def _language(row: PromptRow) -> str:
    """The language of the user's last message; instructions may be in another one."""
    return language_of(row.prompt)


def _names_language(rows: Sequence[PromptRow]) -> bool:
    return any(str(name).casefold() in _LANGUAGE_COLUMNS for row in rows for name in row.columns)
