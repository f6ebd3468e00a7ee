"""DAT107."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from grpodoctor.preflight.answers.constructed_answers import are_programs
from grpodoctor.preflight.answers.kinds.number_puzzles import posed_puzzles
from grpodoctor.preflight.answers.multiple_choice import options_of, without_option_order
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.affixes import Words, without_affixes
from grpodoctor.preflight.texts.near_duplicates import near_duplicates
from grpodoctor.preflight.texts.normal_form import loose_words_of, without_accents
from grpodoctor.preflight.texts.other_ends import with_other_ends
from grpodoctor.preflight.texts.overlap import overlapping
from grpodoctor.support.numbers import part_of

_SHOWN = 5
_HELD_OUT_SPLITS = frozenset({"test", "testing", "validation", "valid", "val", "dev", "eval"})
_MIN_RENAMED = 0.05
"""Share of held-out prompts with the numbers and the answer of a training prompt. Fewer agree by
chance."""
_MOST_COMPARED = 8
"""Words of an answer up to which another one contradicts it; a longer one may be a paraphrase."""
_SWITCH = re.compile(
    r"(?<!\S)/(?:no_?)?think\b|\b(?:detailed )?thinking:? (?:on|off)\b|"
    r"\breasoning(?: effort)?: ?(?:low|medium|high|none|off|on)\b"
)
"""Switches of a model's thoughts. A prompt with another one is another task."""
_SLOT = re.compile(r"\{\{?\s*[A-Za-z_][\w.\[\]'\" ]{0,60}\}?\}|\$\{\w{1,40}\}|%\(\w{1,40}\)s")
"""A name in the braces of a template that was not filled in."""
_ALIKE_HELD_OUT = 0.5
"""Part of their words that they must share besides."""


class DuplicatePrompts(Check):
    """The data contains the same prompt more than once.

    What it sees:
        Prompts that differ only in whitespace and case, or in punctuation and layout; prompts with
        the same answer, the same three or more numbers in the same order, and four fifths of their
        words in common; duplicates with different short answers (texts and programs can be right
        in several ways); and
        held-out prompts (--held-out) that are also training prompts. Held-out prompts are compared
        by their words, numbers and operators, without punctuation, cosmetic LaTeX, currencies, the
        order of lettered options, system messages, and instructions that most prompts of a file
        begin or end with; 5.00 equals 5, and so does five. A held-out prompt also counts if
        it contains a training prompt of at least eight words, or is contained in one, or has its
        answer, its three or more numbers in the same order and half of its words.
        Also held-out prompts that differ from a training prompt in their first or last four words
        only, if training prompts do not differ so among themselves. Also rows whose column
        `split`, or verl's `extra_info`, names a test or validation split.

    Why it matters:
        Duplicates count twice, and a duplicate in the held-out data makes its accuracy
        meaningless. Duplicates with different answers reward and punish the same response.

    What to do:
        Keep one of each, and correct the contradictory ones. Remove held-out prompts from the
        training data.

    When it is wrong:
        A task may repeat a prompt on purpose, with a hidden state that decides the answer. Prompts
        with another switch of the thoughts ("/think", "/no_think") are no duplicates.
        Paraphrases and translations are not found.

    References:
        None.
    """

    code: ClassVar[str] = "DAT107"
    name: ClassVar[str] = "duplicate-prompts"
    summary: ClassVar[str] = "The data contains the same prompt more than once."
    warning_share: ClassVar[float] = 0.05
    """Share of rows from which duplicates are a warning."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Group prompts by their text."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        groups: dict[str, list[PromptRow]] = defaultdict(list)
        for row in context.rows:
            groups[" ".join(row.identity().split()).casefold()].append(row)
        duplicates = [rows for rows in groups.values() if len(rows) > 1]
        whole = len(context.rows)
        return (
            *self._repeated(duplicates, whole),
            *self._respelled([rows[0] for rows in groups.values()]),
            *_contradictory([rows for rows in duplicates if len(rows) <= max(_SHOWN, whole / 2)]),
            *_leaked(context.held_out, context.rows),
            *_held_out_splits(context.rows),
        )

    def _repeated(self, duplicates: list[list[PromptRow]], total: int) -> Iterator[CheckFinding]:
        repeated = sum(len(rows) - 1 for rows in duplicates)
        most = max(duplicates, key=len, default=[])
        if len(most) > max(_SHOWN, total / 2) and len({str(row.answer) for row in most}) > 1:
            yield _one_text(most, total)
        elif repeated:
            yield CheckFinding(
                "warning" if repeated / total >= self.warning_share else "info",
                f"{part_of(repeated, total, 'prompts', 'repeat')} an earlier one.",
                ("Keep one of each.",),
                tuple(" = ".join(row.location for row in rows[:3]) for rows in duplicates[:_SHOWN]),
                {"share": repeated / total},
            )

    def _respelled(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Prompts that say the same as an earlier one in other letters."""
        texts = [loose_words_of(row.identity()) for row in rows]
        found = near_duplicates(texts, [row.answer and row.answer.strip() for row in rows])
        switches = [_SWITCH.findall(row.identity().casefold()) for row in rows]
        found = {at: other for at, other in found.items() if switches[at] == switches[other]}
        if len(found) >= self.warning_share * len(rows):
            yield CheckFinding(
                "warning",
                f"{part_of(len(found), len(rows), 'prompts', 'repeat')} "
                "an earlier one in another spelling.",
                ("Keep one of each: compare words and numbers, not letters.",),
                tuple(
                    f"{rows[at].location} = {rows[other].location}"
                    for at, other in sorted(found.items())[:_SHOWN]
                ),
                {"share": len(found) / len(rows)},
            )


def _one_text(rows: Sequence[PromptRow], total: int) -> CheckFinding:
    """Most rows have the same prompt and other answers: their questions are not in it.

    Without a placeholder that shows it, the answers may be hidden on purpose, as in a game.
    """
    text = rows[0].prompt
    slot = _SLOT.search(text)
    return CheckFinding(
        "critical" if slot else "warning",
        f"{part_of(len(rows), total, 'prompts', 'are')} the same text, with different answers"
        + (f": it holds the unfilled placeholder {slot[0]!r:.60}." if slot else "."),
        ("Fill the question of each row into its prompt: it is missing in the code or template "
         "that makes the prompts.",),
        (f"{rows[0].location}: {text[:200]!r}",),
        {"share": len(rows) / total},
    )  # fmt: skip


def _contradictory(duplicates: list[list[PromptRow]]) -> Iterator[CheckFinding]:
    contradictory = [
        rows
        for rows in duplicates
        if _contradict([row.answer for row in rows if row.answer is not None])
    ]
    if contradictory:
        several = len(contradictory) > 1
        yield CheckFinding(
            "warning",
            f"{len(contradictory)} repeated prompt{'s have' if several else ' has'} "
            "contradictory answers.",
            ("Check them: an answer is wrong, or written in several ways.",),
            tuple(
                ", ".join(f"{row.location}: {row.answer}" for row in rows[:3])
                for rows in contradictory[:_SHOWN]
            ),
        )


def _contradict(answers: Sequence[str]) -> bool:
    """Whether the short answers to one prompt differ.

    Programs, translations, summaries and solutions can be written in many right ways. Only the
    final answers of solutions are compared, and texts without one are left out.
    """
    if are_programs(answers):
        return False
    finals = {final_answer(answer) for answer in answers}
    return len({each for each in finals if len(each.split()) <= _MOST_COMPARED}) > 1


def _leaked(held_out: Sequence[PromptRow], rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Held-out prompts that are also training prompts."""
    if not held_out:
        return
    tested, trained = ([_question(row) for row in each] for each in (held_out, rows))
    pairs = overlapping(tested, trained)
    renamed = {at: other for at, other in _renamed(held_out, rows).items() if at not in pairs}
    if len(renamed) >= _MIN_RENAMED * len(held_out):
        pairs |= renamed
    pairs = {**with_other_ends(*_without_instructions(tested, trained)), **pairs}
    pairs = {**_same_puzzles(held_out, rows), **pairs}
    if pairs:
        yield CheckFinding(
            "warning",
            f"{part_of(len(pairs), len(held_out), 'held-out prompts', 'are')} "
            "also training prompts.",
            ("Remove them from the training data.",),
            tuple(
                f"held-out {held_out[index].location} = {rows[other].location}"
                for index, other in sorted(pairs.items())[:_SHOWN]
            ),
            {"leaked": len(pairs) / len(held_out)},
        )


def _without_instructions(*sets: Sequence[Words]) -> list[list[Words]]:
    """The texts of each set without the instructions that all sets together share."""
    cores = without_affixes([text for texts in sets for text in texts])
    starts = [sum(map(len, sets[:at])) for at in range(len(sets))]
    return [cores[at : at + len(texts)] for at, texts in zip(starts, sets, strict=True)]


def _held_out_splits(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Rows that say that they belong to a test or validation split."""
    held_out = [row for row in rows if _split_of(row) in _HELD_OUT_SPLITS]
    if held_out:
        yield CheckFinding(
            "warning",
            f"{part_of(len(held_out), len(rows), 'rows', 'belong')} to a held-out split "
            f"({_split_of(held_out[0])!r}).",
            ("Train on the rows of the training split alone.",),
            tuple(row.location for row in held_out[:_SHOWN]),
            {"share": len(held_out) / len(rows)},
        )


def _split_of(row: PromptRow) -> str:
    """The split that a row names, in a column of its own or in verl's extra_info."""
    extra = row.columns.get("extra_info")
    nested = extra.get("split") if isinstance(extra, Mapping) else None
    return str(row.columns.get("split") or nested or "").strip().casefold()


def _same_puzzles(held_out: Sequence[PromptRow], rows: Sequence[PromptRow]) -> dict[int, int]:
    """Held-out number puzzles that are training puzzles with their numbers in another order."""
    trained = {
        (tuple(sorted(puzzle.numbers)), puzzle.target): at
        for at, puzzle in enumerate(posed_puzzles(rows))
        if puzzle
    }
    tested = [
        (tuple(sorted(puzzle.numbers)), puzzle.target) if puzzle else None
        for puzzle in posed_puzzles(held_out)
    ]
    return {at: trained[key] for at, key in enumerate(tested) if key in trained}


def _renamed(held_out: Sequence[PromptRow], rows: Sequence[PromptRow]) -> dict[int, int]:
    """Held-out prompts that are training prompts with other names or in other words."""
    both = [*rows, *held_out]
    found = near_duplicates(
        [_question(row) for row in both],
        [final_answer(row.answer or "") or None for row in both],
        alike=_ALIKE_HELD_OUT,
    )
    size = len(rows)
    return {at - size: other for at, other in found.items() if at >= size > other}


def _question(row: PromptRow) -> Words:
    """The words of the user's messages; system messages differ between training and tests."""
    texts = [without_option_order(text) for text in row.user_texts() or [row.prompt]]
    return loose_words_of(without_accents("\n".join([*texts, *sorted(options_of(row))])))
