"""DAT113."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from grpodoctor.preflight.answers.multiple_choice import (
    lettered_options,
    options_of,
    outside_options,
)
from grpodoctor.preflight.answers.stated_answers import final_answer, marked_answer
from grpodoctor.preflight.answers.written_forms import mixed_separators
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.data.lost_options import lost_options, unsolved_findings
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import flat_columns
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.agreeing_columns import disagreeing_columns
from grpodoctor.preflight.texts.alignment import (
    PartialShift,
    Shift,
    partial_shift_of_sizes,
    partial_shift_of_words,
    shift_of_sizes,
    shift_of_words,
)
from grpodoctor.preflight.texts.joins import answers_of_other_prompts, filled_down
from grpodoctor.preflight.texts.kind_alignment import partial_shift_of_kinds, shift_of_kinds
from grpodoctor.preflight.texts.normal_form import number_of, numbers_of, words_of
from grpodoctor.preflight.texts.number_relations import WrongNumbers, overflowed, wrong_numbers
from grpodoctor.preflight.texts.permuted_answers import displaced_words, permuted_numbers
from grpodoctor.preflight.texts.repeated_block import repeated_block
from grpodoctor.preflight.texts.result_alignment import are_own_results, shift_of_results

_MAX_ROWS = 2000
"""Consecutive rows that are compared: enough for any displacement."""
_MIN_ROWS = 20
_SHOWN = 4


class MisalignedAnswers(Check):
    """The answers do not belong to their prompts.

    What it sees:
        Answers that are the number or the id of their row; columns of the data that share more rare
        words with the prompt of a row nearby than with their own prompt, in all rows or in at least
        twenty consecutive ones; numbers whose size follows from the numbers in another row's
        prompt, or that are the sum, difference, product or quotient of two of them; kinds of
        answers, such as a number or yes, that another row's prompt asks for; and answers that
        differ from the final answer of the solution in the same row, are intermediate results of
        it, or mostly do not occur in it; a block of answers that occurs again behind other prompts.

        If most answers occur in their own prompt, also answers that occur in other rows' prompts
        only. If a formula of the prompt's numbers gives most answers without an error, also answers
        that are a constant times its result, such as grams among milligrams, its result in another
        row, or a number of the prompt. Also answers that repeat the row before far more often than
        by chance, as if empty cells were filled from above, keys that name no option of their
        question, prompts that ask for a letter and have no options, and two columns, such as the
        letter and the text of the answer, that name different options.

    Why it matters:
        Correct responses are rewarded only by accident. The reward stays near zero or follows the
        guessable answers, and nothing in the training curves points to the data.

    What to do:
        Join prompts and answers by an id again, and check a few rows by hand.

    When it is wrong:
        Answers that are letters or a single word have nothing in common with any prompt, so that
        their displacement is found only among questions of several kinds. Displacements of more
        than three rows are found if answers occur in the prompts, or follow from one formula.

    References:
        None.
    """

    code: ClassVar[str] = "DAT113"
    name: ClassVar[str] = "answers-of-other-rows"
    summary: ClassVar[str] = "The answers do not belong to their prompts."
    min_id_share: ClassVar[float] = 0.9
    """Share of answers that must follow the row's number or id; accidents are far rarer."""
    min_agreement: ClassVar[float] = 0.5
    """Share of rows in which answer and solution must agree, so that the others are errors."""
    warning_share: ClassVar[float] = 0.01
    """Share of rows with another answer than their solution, from which the finding is a
    warning: public sets have a few such rows."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare answers with ids, with the prompts of other rows, and with solutions."""
        rows = context.rows[:_MAX_ROWS]
        if not any(row.answer for row in rows):
            return SkippedCheck("the prompts have no answers", "add a column of answers")
        by_id = [*self._row_ids(rows)] or [*self._text_ids(rows)]
        return by_id or (
            *(tuple(_shifts(rows)) or _foreign(rows)),
            *_outside(rows),
            *(
                tuple(self._other_than_solution(context.rows))
                or tuple(_disagreeing(context.rows))
                or unsolved_findings(context.rows)
            ),
        )

    def _row_ids(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        answered = [
            (row, number)
            for row in rows
            if row.answer and (number := number_of(final_answer(row.answer))) is not None
        ]
        if len(answered) < max(_MIN_ROWS, self.min_id_share * len(rows)):
            return
        ids: dict[str, list[float | None]] = {
            "row number": [float(row.number) for row, _ in answered]
        }
        for name in _id_columns(rows):
            ids[f"row id ({name})"] = [_number_at(row.columns, name) for row, _ in answered]
        for name, numbers in ids.items():
            offset, share = _constant_offset([answer for _, answer in answered], numbers)
            if share >= self.min_id_share and not self._follows_from_prompt(answered):
                plus = f" {offset:+g}" if offset else ""
                yield _id_finding([row for row, _ in answered], name + plus, share, len(answered))
                return

    def _text_ids(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Answers that repeat the text of an id column."""
        names = [name for name in flat_columns(rows[0].columns) if _is_id_name(name)]
        for name in names:
            equal = [
                row
                for row in rows
                if row.answer and row.answer == flat_columns(row.columns).get(name)
            ]
            if len(rows) >= _MIN_ROWS and len(equal) >= self.min_id_share * len(rows):
                yield _id_finding(equal, f"row id ({name})", len(equal) / len(rows), len(rows))
                return

    def _follows_from_prompt(self, answered: Sequence[tuple[PromptRow, float]]) -> bool:
        """Whether a fixed distance to a number in the prompt explains the answers as well."""
        offsets = Counter(
            offset
            for row, answer in answered
            for offset in {answer - number for number in numbers_of(row.prompt)}
        )
        return bool(offsets) and max(offsets.values()) >= self.min_id_share * len(answered)

    def _other_than_solution(self, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
        """Rows whose answer is another number than the final answer of their solution."""
        pairs: list[tuple[PromptRow, object, object]] = []
        pairs += [pair for row in rows if (pair := _answer_and_solution(row))]
        pairs += [] if pairs else [key for row in rows if (key := _key_and_solution(row))]
        wrong = [row for row, answer, solution in pairs if answer != solution]
        agreement = 1 - len(wrong) / len(pairs) if pairs else 0.0
        is_key = bool(pairs) and isinstance(pairs[0][1], str)
        is_certain = is_key and len(pairs) >= _MIN_ROWS  # the solution names one of the options
        is_inside = agreement < self.min_agreement and _are_inside(pairs, self.min_id_share)
        if not wrong or (agreement < self.min_agreement and not is_certain and not is_inside):
            return
        share = len(wrong) / len(pairs)
        yield CheckFinding(
            "warning" if share >= self.warning_share else "info",
            f"{len(wrong)} of {len(pairs)} answers "
            + (
                "are another number of their solution than its final answer."
                if is_inside
                else "differ from the solution of their row."
            ),
            ("Check these rows: the answer or the solution is wrong.",),
            tuple(f"{row.location}: answer {row.answer!r:.60}" for row in wrong[:_SHOWN]),
            {"share": share},
        )


def _are_inside(pairs: Sequence[tuple[PromptRow, object, object]], least: float) -> bool:
    """Whether nearly all answers are numbers of a solution in their row, but not its final one."""
    inside = [
        answer in numbers_of(value)
        for row, answer, _ in pairs
        if (value := _solution_of(row)) is not None
    ]
    return len(inside) >= _MIN_ROWS and sum(inside) >= least * len(pairs)


def _id_finding(rows: Sequence[PromptRow], name: str, share: float, total: int) -> CheckFinding:
    return CheckFinding(
        "critical",
        f"{share:.0%} of {total} answers are the {name}.",
        ("Put the reference answers into the answer column.",),
        tuple(f"{row.location}: answer {row.answer!r}" for row in rows[:_SHOWN]),
        {"share": share},
    )


def _id_columns(rows: Sequence[PromptRow]) -> list[str]:
    """Columns, also nested ones, with another integer in every row."""
    names = flat_columns(rows[0].columns)
    return [
        name
        for name in names
        if len({value for row in rows if (value := _number_at(row.columns, name)) is not None})
        == len(rows)
        and _is_id_name(name)
    ]


def _is_id_name(name: str) -> bool:
    last = name.rpartition(".")[2].casefold()
    return last in {"row", "number", "no", "nr", "uid"} or any(
        part in {"id", "idx", "index"} for part in last.replace("-", "_").split("_")
    )


def _number_at(columns: Mapping[str, Any], name: str) -> float | None:
    value = flat_columns(columns).get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return number_of(value) if isinstance(value, str) else None


def _constant_offset(
    answers: Sequence[float], numbers: Sequence[float | None]
) -> tuple[float, float]:
    """The most frequent difference of two columns, and the share of rows that have it."""
    offsets = Counter(
        answer - number
        for answer, number in zip(answers, numbers, strict=True)
        if number is not None
    )
    if not offsets:
        return 0.0, 0.0
    offset, count = offsets.most_common(1)[0]
    return offset, count / len(answers)


def _shifts(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """The first column whose values belong to the prompts of other rows."""
    prompts = ["\n".join([*row.texts(), *options_of(row)]) for row in rows]
    tables = [_texts_of(row) for row in rows]
    for name in dict.fromkeys(name for table in tables for name in table):
        values = [table.get(name, "") for table in tables]
        is_answer = all(row.answer in (None, text) for row, text in zip(rows, values, strict=True))
        if not is_answer and len(set(values)) < len(values) / 2:
            continue  # a category, not a text about the prompt
        if not is_answer and _is_id_name(name):
            continue
        shift = shift_of_words(prompts, values) or _shift_of_numbers(prompts, values)
        if shift is not None:
            yield _shift_finding(name, shift)
            return
        part = partial_shift_of_words(prompts, values) or _part_of_numbers(prompts, values)
        if part is None and is_answer:
            finals = [final_answer(value) for value in values]
            if kinds := shift_of_kinds(prompts, finals):
                yield _shift_finding(name, kinds)
                return
            part = partial_shift_of_kinds(prompts, finals)
        if part:
            yield _partial_finding(name, part, rows)
            return


def _foreign(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Answers that have the relation of the others to the prompt of another row."""
    answered = [row for row in rows if row.answer]
    prompts = ["\n".join([*row.texts(), *options_of(row)]) for row in answered]
    answers = [final_answer(row.answer or "") for row in answered]
    if found := answers_of_other_prompts(prompts, answers):
        yield _some(answered, found, "occur in another row's prompt, and not in their own")
    wrong = None if mixed_separators(answers) else wrong_numbers(prompts, answers)
    if wrong:
        yield _wrong_numbers_finding(answered, wrong)
    if found := overflowed(answers):
        yield _some(
            answered, found, "are negative: the column overflows 32 bits",
            "Compute the answers again with 64 bits or Python's integers.",
        )  # fmt: skip
    if found := filled_down(prompts, answers):
        yield _some(answered, found, "repeat the row before, as if empty cells were filled")
    elif found := permuted_numbers(prompts, answers):
        yield _some(
            answered, found, "are results of other prompts: one formula gives all answers in "
            "another order",
        )  # fmt: skip
    elif order := displaced_words(prompts, answers):
        yield _some(
            answered, range(len(answered)), f"are displaced: they occur in the prompts {order}"
        )
    elif block := repeated_block(prompts, answers):
        yield _some(
            answered, range(block.start, block.stop),
            f"in consecutive rows repeat those of {block.lag} rows earlier, behind other prompts",
        )  # fmt: skip


_REJOIN = "Join prompts and answers by an id again, and compare the listed rows by hand."


def _some(
    rows: Sequence[PromptRow], found: Sequence[int], words: str, advice: str = _REJOIN
) -> CheckFinding:
    return CheckFinding(
        "warning",
        f"{len(found)} of {len(rows)} answers {words}.",
        (advice,),
        tuple(f"{rows[at].location}: answer {rows[at].answer!r:.60}" for at in found[:_SHOWN]),
        {"share": len(found) / len(rows)},
    )


def _wrong_numbers_finding(rows: Sequence[PromptRow], wrong: WrongNumbers) -> CheckFinding:
    details = tuple(
        f"{rows[at].location}: answer {rows[at].answer!r}" for at in wrong.rows[:_SHOWN]
    )
    share = {"share": len(wrong.rows) / len(rows)}
    formula = f"the formula that gives {wrong.exact} others"
    if wrong.place:
        return CheckFinding(
            "warning",
            f"{len(wrong.rows)} of {len(rows)} answers only repeat number {wrong.place} of their "
            f"prompt, unlike {formula}.",
            ("Check which value was stored as the answer in these rows.",), details, share,
        )  # fmt: skip
    if not wrong.factor:
        return CheckFinding(
            "warning",
            f"{len(wrong.rows)} of {len(rows)} answers are other rows' results by {formula}.",
            ("Join prompts and answers by an id again.",), details, share,
        )  # fmt: skip
    is_small = abs(wrong.factor) < 1
    factor = 1 / wrong.factor if is_small else wrong.factor
    return CheckFinding(
        "warning",
        f"{len(wrong.rows)} of {len(rows)} answers are {factor:.4g} times too "
        f"{'small' if is_small else 'large'} for {formula}.",
        ("Store all answers in the unit that the prompts ask for.",), details, share,
    )  # fmt: skip


def _outside(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Keys that name no option of their question, and questions that have lost their options."""
    if lost := tuple(lost_options(rows)):
        yield from lost
        return
    found, from_zero = outside_options([row for row in rows if row.answer])
    if found:
        yield CheckFinding(
            "warning",
            f"{len(found)} of {len(rows)} answers name no option of their question"
            f"{', as if options were counted from 0' if from_zero else ''}.",
            (
                "Number the options as the answers do: all answers are one too small."
                if from_zero
                else "Correct these answers, or restore the missing options.",
            ),
            tuple(f"{row.location}: answer {row.answer!r:.20}" for row in found[:_SHOWN]),
            {"share": len(found) / len(rows)},
        )


def _disagreeing(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Two columns that name different options of the same question."""
    columns = [
        {name: value for name, value in flat_columns(row.columns).items()
         if name not in {row.prompt_column, *_OWN_COLUMNS}}
        for row in rows
    ]  # fmt: skip
    found = disagreeing_columns([lettered_options(row) for row in rows], columns)
    if found:
        one, other = found.columns
        plural = "s" if found.distance > 1 else ""
        distance = f", {found.distance} option{plural} further" if found.distance else ""
        yield CheckFinding(
            "warning",
            f"In {len(found.rows)} of {found.compared} rows, the column {one!r} names another "
            f"option than the column {other!r}{distance}.",
            ("Check these rows: one of the two columns is wrong.",),
            tuple(
                f"{rows[at].location}: {columns[at][one]!r} and {columns[at][other]!r:.40}"
                for at in found.rows[:_SHOWN]
            ),
            {"share": len(found.rows) / found.compared},
        )


def _texts_of(row: PromptRow) -> dict[str, str]:
    """The texts of a row that may belong to its prompt, by the name of their column."""
    own = {row.prompt_column, *_OWN_COLUMNS}
    texts = {
        name: _text(value) for name, value in flat_columns(row.columns).items() if name not in own
    }
    if row.answer and row.answer not in texts.values():
        texts["answer"] = row.answer
    return {name: text for name, text in texts.items() if text}


_NAMED_LETTER = re.compile(
    r"\b(?:answer|option|choice)\b(?:\s+(?:is|choice|option))*\s*[:=]?\s*[(\[]?([A-E])\b(?!\s+[a-z])",
    re.IGNORECASE,
)
"""The letter that a solution names, such as "Answer: B" or "the correct option is (C)"."""
_OWN_COLUMNS = ("choices", "options", "endings", "choices.text", "choices.label")


def _text(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(entry for entry in value if isinstance(entry, str))
    is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_text else ""


def _shift_of_numbers(prompts: Sequence[str], values: Sequence[str]) -> Shift | None:
    numbers = [number_of(final_answer(value)) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) != len(prompts) or are_own_results(prompts, known):
        return None
    return shift_of_results(prompts, known) or shift_of_sizes(prompts, known)


def _part_of_numbers(prompts: Sequence[str], values: Sequence[str]) -> PartialShift | None:
    numbers = [number_of(final_answer(value)) for value in values]
    known = [number for number in numbers if number is not None]
    return partial_shift_of_sizes(prompts, known) if len(known) == len(prompts) else None


def _shift_finding(column: str, shift: Shift) -> CheckFinding:
    direction = "earlier" if shift.rows > 0 else "later"
    unit = "row" if abs(shift.rows) == 1 else "rows"
    return CheckFinding(
        "critical",
        f"The column {column!r} is shifted: it fits the prompts {abs(shift.rows)} {unit} "
        f"{direction}.",
        ("Join prompts and answers by an id again.",),
        (f"{shift.wins} of {shift.compared} rows fit another row's prompt better than their own",),
        {"rows": float(shift.rows), "share": shift.wins / shift.compared},
    )


def _partial_finding(column: str, part: PartialShift, rows: Sequence[PromptRow]) -> CheckFinding:
    first, last = rows[part.start], rows[part.stop - 1]
    shift = part.shift
    return CheckFinding(
        "warning",
        f"The column {column!r} is shifted by {abs(shift.rows)} in {part.stop - part.start} "
        "consecutive rows.",
        ("Join prompts and answers by an id again.",),
        (
            f"from {first.location} to {last.location}",
            f"{shift.wins} of {shift.compared} rows fit another row's prompt better than their own",
        ),
        {"rows": float(shift.rows), "share": (part.stop - part.start) / len(rows)},
    )


def _key_and_solution(row: PromptRow) -> tuple[PromptRow, str, str] | None:
    """The text of the option that is the key, and the only option that another column names."""
    options = lettered_options(row)
    key = (row.answer or "").strip(" ().").upper()
    if key not in options:
        return None
    folded = {letter: f" {' '.join(words_of(text))} " for letter, text in options.items()}
    for name, value in flat_columns(row.columns).items():
        if not isinstance(value, str) or name == row.prompt_column or value == row.answer:
            continue
        if letters := _NAMED_LETTER.findall(value):
            return row, folded[key], folded.get(letters[-1].upper(), "")
        text = f" {' '.join(words_of(value))} "
        named = [letter for letter, option in folded.items() if option.strip() and option in text]
        if len(named) == 1 and len(text) > len(folded[named[0]]):
            return row, folded[key], folded[named[0]]
    return None


def _answer_and_solution(row: PromptRow) -> tuple[PromptRow, float, float] | None:
    """The answer and the final answer of another column, if both are numbers."""
    answer, text = number_of(final_answer(row.answer or "")), _solution_of(row)
    solution = None if text is None else number_of(marked_answer(text))
    return None if answer is None or solution is None else (row, answer, solution)


def _solution_of(row: PromptRow) -> str | None:
    """The first other text of a row that marks a number as its final answer."""
    for name, value in flat_columns(row.columns).items():
        is_other = isinstance(value, str) and value != row.answer and name != row.prompt_column
        if is_other and number_of(marked_answer(value)) is not None:
            return str(value)
    return None
