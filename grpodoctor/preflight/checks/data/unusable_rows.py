"""DAT112."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.answer_variants import CALLS_IN_CODE
from grpodoctor.preflight.answers.kinds.blank_forms import blank_forms
from grpodoctor.preflight.answers.kinds.lost_parts import without_number
from grpodoctor.preflight.answers.kinds.pointers import is_pointer
from grpodoctor.preflight.answers.kinds.unusable_answers import (
    cut_answers,
    filled_in,
    is_note,
    is_representation,
    is_spreadsheet_value,
)
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import ANSWER_COLUMNS, blank_value, has_blank_answer
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, RowDefect
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_SHOWN = 5
_PAID_ROWS = 16
"""Rows whose empty responses are scored."""
_FINAL_MARKS = ("####", "\\boxed")
_WRITTEN_LIST = re.compile(r"\[\s*('[^'\n]*'|\"[^\"\n]*\")\s*\]")
_OR_NOTHING = re.compile(
    r"\bif (?:there (?:is|are) )?(?:none|nothing|no\b)|\bnone (?:applies|apply|of them)\b|"
    r"\bempty (?:list|array)\b|\[\s*\]",
    re.IGNORECASE,
)
"""Instructions for a list that may have no element."""
_SOURCE_COLUMNS = ("data_source", "source", "dataset", "ability", "task", "type")
"""Columns that say from which collection a row comes."""


class UnusableRows(Check):
    """Rows have no prompt or no answer.

    What it sees:
        Rows that cannot be read, or whose prompt is empty; and rows whose answer is empty or a
        placeholder such as None or nan, although other rows of the same source have one. Also
        solutions without the mark of the final answer (####, a box) that most others have; answers
        that are a list of one text written as text (`['42']`), one text such as "[NO ANSWER]" in
        place of many answers that otherwise differ, a note such as "Q.E.D." or "see the
        proof above", how Python shows an object (`np.float64(3.5)`), or what a spreadsheet made of
        them (`4/6` becomes `04-Jun`), paths, links and ids for which no prompt asks, and units that
        have lost their number; and answers of several words that were cut at a number of
        characters.

    Why it matters:
        An engine refuses an empty prompt, which ends a run hours after its start. A row without an
        answer rewards nothing, or, if the reward searches the response for the answer, everything.

    What to do:
        Remove the listed rows, or correct them.

    When it is wrong:
        A task that a judge model rewards needs no answers. Sources without any answer are therefore
        not reported. None, nan and inf are answers if the prompt contains code that prints, and an
        empty list is one if the prompt says what to write if there is nothing.

    References:
        Visual-RFT issue 176: an empty answer is a substring of any text, and was rewarded.
    """

    code: ClassVar[str] = "DAT112"
    name: ClassVar[str] = "empty-prompts-or-answers"
    summary: ClassVar[str] = "Rows have no prompt or no answer."
    max_unmarked_share: ClassVar[float] = 0.4
    """Share of solutions without a final answer, up to which the others show that they have one."""
    warning_share: ClassVar[float] = 0.01
    """Share of defective answers from which the finding is a warning."""
    critical_share: ClassVar[float] = 0.5
    """Share of rows from which the finding is critical: most of the data is lost."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Count the rows without a prompt, and those without an answer."""
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        return (
            *self._without_prompt(context.table.defects, len(context.rows)),
            *self._without_answer(context),
            *self._cut_solutions(context.rows),
            *self._useless(
                context.rows, "are lists of one text, stored as text",
                lambda row: bool(_WRITTEN_LIST.fullmatch((row.answer or "").strip())),
                "Store the answer itself: a reward compares it with the brackets.",
            ),
            *self._useless(
                context.rows, "are notes, such as Q.E.D., with which nothing can be compared",
                lambda row: is_note(final_answer(row.answer or "")),
                "Remove these rows: only a judge model can reward a proof or an open question.",
            ),
            *self._useless(
                context.rows, "are dates or errors of a spreadsheet",
                lambda row: is_spreadsheet_value(row.answer or "", row.prompt),
                "Make the file again from its source without a spreadsheet, or with text cells.",
            ),
            *self._useless(
                context.rows, "are shown as Python shows objects, such as np.float64(3.5)",
                lambda row: is_representation(row.answer or ""),
                "Convert values with str(), item() or tolist() before they are stored.",
            ),
            *self._useless(
                context.rows, "are paths, links or ids, for which no prompt asks",
                lambda row: is_pointer(row.answer or "", "\n".join(row.texts())),
                "Store the answers themselves in place of where they are.",
            ),
            *self._without_number(context.rows),
            *self._blank(context.rows),
            *self._filled_in(context.rows),
            *self._useless_if_cut(context.rows),
        )  # fmt: skip

    def _without_prompt(self, defects: Sequence[RowDefect], usable: int) -> Iterator[CheckFinding]:
        if not defects:
            return
        total = len(defects) + usable
        share = len(defects) / total
        reason, _ = Counter(defect.reason.partition(":")[0] for defect in defects).most_common(1)[0]
        yield CheckFinding(
            "critical" if share >= self.critical_share else "warning",
            f"{part_of(len(defects), total, 'rows', 'have')} no prompt: {reason}.",
            ("Remove these rows, or correct them.",),
            tuple(f"{defect.location}: {defect.reason}" for defect in defects[:_SHOWN]),
            {"share": share},
        )

    def _without_answer(self, context: PreflightContext) -> Iterator[CheckFinding]:
        rows, column = context.rows, context.answer_column
        answered = Counter(_source(row) for row in rows if row.answer is not None)
        expected = [row for row in rows if answered[_source(row)] or not answered]
        missing = [
            row
            for row in expected
            if has_blank_answer(row.columns, column) and not _means_nothing(row, column)
        ]
        if not answered and not _may_read_answers(context.reward):
            return  # a column for other uses: the reward has its answers elsewhere
        if _pays_for_nothing(context.reward, rows, missing, column):
            return
        if missing:
            share = len(missing) / len(expected)
            yield CheckFinding(
                "critical" if share >= self.critical_share else "warning",
                f"{part_of(len(missing), len(expected), 'rows', 'have')} an empty answer.",
                ("Remove these rows, or add their answers.",),
                tuple(row.location for row in missing[:_SHOWN]),
                {"share": share},
            )

    def _cut_solutions(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Solutions without the mark of the final answer that the others have."""
        solutions = [row for row in rows if row.answer and len(row.answer.split()) > 1]
        for mark in _FINAL_MARKS:
            unmarked = [row for row in solutions if mark not in (row.answer or "")]
            share = len(unmarked) / max(len(solutions), 1)
            if unmarked and share <= self.max_unmarked_share:
                yield CheckFinding(
                    "warning" if share >= self.warning_share else "info",
                    f"{part_of(len(unmarked), len(solutions), 'solutions', 'have')} "
                    "no final answer after "
                    f"{mark}; they may be cut off.",
                    ("Restore these solutions from their source, or remove the rows.",),
                    tuple(
                        f"{row.location}: …{(row.answer or '')[-60:]!r}"
                        for row in unmarked[:_SHOWN]
                    ),
                    {"share": share},
                )

    def _blank(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Values that stand for no answer."""
        answered = [row for row in rows if row.answer]
        prompts = ["\n".join(row.texts()) for row in answered]
        found = blank_forms(prompts, [row.answer or "" for row in answered])
        chosen = {id(answered[at]) for at in found}
        value = (answered[found[0]].answer or "").strip() if found else ""
        if is_note(value):
            return
        yield from self._useless(
            answered, f"are {value!r:.30}, which stands for no answer",
            lambda row: id(row) in chosen, "Remove these rows, or add their answers.",
        )  # fmt: skip

    def _without_number(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Answers of which only the unit is left."""
        answered = [row for row in rows if row.answer]
        indices = without_number([row.answer or "" for row in answered])
        found = {id(answered[at]) for at in indices if not _asks_for_word(answered[at])}
        yield from self._useless(
            answered, "are a unit without a number, where the others have one",
            lambda row: id(row) in found, "Restore the numbers of these answers.",
        )  # fmt: skip

    def _filled_in(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """One note in place of many answers."""
        answers = [row.answer or str(row.columns.get("reference") or "") for row in rows]
        texts = filled_in([answer for answer in answers if answer])
        found = [row for row, answer in zip(rows, answers, strict=True) if answer.strip() in texts]
        if found:
            yield CheckFinding(
                "warning",
                f"{part_of(len(found), len(rows), 'answers', 'are')} the placeholder "
                f"{', '.join(map(repr, sorted(texts)))[:60]}.",
                ("Remove these rows, or add their answers.",),
                tuple(row.location for row in found[:_SHOWN]),
                {"share": len(found) / len(rows)},
            )

    def _useless_if_cut(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Answers that end at a limit of characters."""
        answered = [row for row in rows if row.answer]
        cut = {id(answered[at]) for at in cut_answers([row.answer or "" for row in answered])}
        length = max((len(row.answer or "") for row in answered), default=0)
        yield from self._useless(
            answered, f"end at {length} characters: they were cut", lambda row: id(row) in cut,
            "Make the file again from its source without a limit on answers.",
        )  # fmt: skip

    def _useless(
        self, rows: Sequence[PromptRow], words: str, holds: Callable[[PromptRow], bool], advice: str
    ) -> Iterator[CheckFinding]:
        """Answers that a reward function compares in vain."""
        answered = [row for row in rows if row.answer]
        useless = [row for row in answered if holds(row)]
        share = len(useless) / max(len(answered), 1)
        if share >= self.warning_share:
            yield CheckFinding(
                "warning",
                f"{part_of(len(useless), len(answered), 'answers', words)}.",
                (advice,),
                tuple(f"{row.location}: {row.answer!r:.80}" for row in useless[:_SHOWN]),
                {"share": share},
            )


def _means_nothing(row: PromptRow, column: str) -> bool:
    """Whether an answer that looks empty is one: the output of code, or a list without elements.

    The prompt then contains the code, or says what to write if there is nothing.
    """
    prompt = "\n".join(row.texts())
    value = blank_value(row.columns, column)
    if isinstance(value, str):
        return bool(value.strip()) and CALLS_IN_CODE.search(prompt) is not None
    return isinstance(value, list) and _OR_NOTHING.search(prompt) is not None


def _may_read_answers(reward: UserReward | None) -> bool:
    """Whether a function takes answers, under their usual names or whatever columns there are."""
    names = (*reward.parameters, *reward.keywords) if reward else ANSWER_COLUMNS
    return not names or bool({"answers", *ANSWER_COLUMNS}.intersection(names))


def _pays_for_nothing(
    reward: UserReward | None,
    rows: Sequence[PromptRow],
    missing: Sequence[PromptRow],
    column: str,
) -> bool:
    """Whether lists without elements are answers: a response without any is right there alone."""
    values = [blank_value(row.columns, column) for row in missing]
    answered = [row for row in rows if row.answer][:_PAID_ROWS]
    if reward is None or not (missing and answered and all(value == [] for value in values)):
        return False
    chosen = missing[:_PAID_ROWS]
    try:
        paid = reward([*chosen, *answered], [""] * (len(chosen) + len(answered))).total
    except DataError:  # REW103 reports it
        return False
    return min(paid[: len(chosen)]) > max(paid[len(chosen) :])


def _source(row: PromptRow) -> str:
    return "/".join(str(row.columns.get(name)) for name in _SOURCE_COLUMNS if name in row.columns)


_WHICH = re.compile(r"\b(?:which|what unit|name the)\b", re.IGNORECASE)
_HOW_MANY = re.compile(r"\bhow (?:many|much|long|far|heavy|tall|old)\b", re.IGNORECASE)


def _asks_for_word(row: PromptRow) -> bool:
    """Whether a prompt asks for one of several things, such as a unit, and for no number."""
    prompt = "\n".join(row.texts())
    return bool(_WHICH.search(prompt)) and not _HOW_MANY.search(prompt)
