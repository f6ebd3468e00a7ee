"""DAT126."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.kinds.exponents import with_exponent
from grpodoctor.preflight.answers.kinds.lost_parts import with_float_noise
from grpodoctor.preflight.answers.kinds.persons_and_places import numbers_for_names
from grpodoctor.preflight.answers.reference_answers import REQUIRES_ANSWERS, ReferenceAnswers
from grpodoctor.preflight.answers.requested.asked_choices import outside_choices
from grpodoctor.preflight.answers.requested.asked_patterns import OutsidePattern, outside_pattern
from grpodoctor.preflight.answers.requested.decimal_notation import with_other_decimals
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.answers.written_forms import (
    common_line,
    doubled_backslashes,
    lost_zeros,
    mixed_forms,
    mixed_separators,
    prompt_spelling,
    unfit_forms,
)
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.rules.base import Severity
from grpodoctor.support.numbers import count_of, part_of

_MAX_ROWS = 2000
_SHOWN = 4
_MIN_ROWS = 20
_MIN_REFUSED = 0.5
_MIN_SPELLED = 0.2
"""Share of answers that their prompt must spell in another way."""


class AnswerForms(Check):
    """The answers are written in several forms, or in another form than the prompts ask for.

    What it sees:
        Answers of which some have something around them that the others lack: quotation marks, a
        unit, a currency or percent sign, a label, markup. It is a warning if the reward function
        refuses the form of the others in these rows. Numbers like 1.234,50 among numbers like
        1,234.50, or where the prompts write 1234.50; LaTeX commands with one and with two
        backslashes; numbers with the rounding of 32-bit floats, or with an exponent; answers
        without a pattern that prompts spell out (HH:MM); codes without the zeros in front that they
        have in the prompt; names without the case or accents of the prompt, if the reward function
        refuses the prompt's own spelling; a line that all answers have besides a short answer,
        without which a correct answer earns nothing; answers without the form that nearly all
        prompts ask for: decimals, a fraction, one word, a letter; and answers that are none of
        those which the prompts offer, as in "[[A]] or [[B]]"; numbers as answers to questions that
        ask who or where.

    Why it matters:
        The model learns one form, and correct answers in it earn nothing in the rows that want the
        other form. This is noise that looks like hard prompts. 1.234 can be read as two numbers.

    What to do:
        Write all answers in one form, the one that the prompts ask for.

    When it is wrong:
        A sign can belong to the answer, and the reward function is right to want it.

    References:
        None.
    """

    code: ClassVar[str] = "DAT126"
    name: ClassVar[str] = "answers-in-several-forms"
    summary: ClassVar[str] = "Answers have several forms, or another one than prompts ask for."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the forms of answers with each other and with the prompts."""
        rows = [row for row in spread_rows(context.rows, _MAX_ROWS) if row.answer]
        decimals = tuple(_other_decimals(context))
        if not rows:
            return decimals or REQUIRES_ANSWERS
        if len(rows) < _MIN_ROWS:
            return SkippedCheck(f"{count_of(len(rows), 'answer')}: too few", "pass more prompts")
        answers = [(row.answer or "") for row in rows]
        finals = [final_answer(answer) for answer in answers]
        prompts = ["\n".join(row.texts()) for row in rows]
        scored = _scored(context)
        return (
            *decimals,
            *_mixed(context, scored, rows, prompts, finals),
            *_report(
                rows, mixed_separators(finals), "have another decimal separator than the others",
                "Write all numbers with a decimal point and without thousands separators.",
            ),
            *_report(
                rows, doubled_backslashes(finals),
                "have LaTeX commands with two backslashes, others with one",
                "Undo one level of escapes in these answers.",
            ),
            *_report(
                rows, lost_zeros(prompts, finals), "lack the zeros in front that the prompt has",
                "Read the column of answers as text, not as numbers.",
            ),
            *_report(
                rows, with_float_noise(finals),
                "have the noise of 32-bit floats, as in 12.399999618530273 for 12.4",
                "Round the numbers to the digits that were computed before they are stored.",
            ),
            *_exponents(context, scored, rows, with_exponent(prompts, finals)),
            *_outside_pattern(context, scored, rows, outside_pattern(prompts, finals)),
            *_other_spelling(context, scored, rows, prompts, finals),
            *_extra_line(context, scored, rows, *common_line(prompts, answers)),
            *_report(
                rows, numbers_for_names(prompts, finals), "are numbers where the prompts ask who "
                "or where",
                "Store the names: these numbers may be positions, such as those of passages, or "
                "ids.",
            ),
            *_outside_choices(context, rows, outside_choices(prompts, finals)),
            *(
                finding for name, unfit in unfit_forms(prompts, finals)
                for finding in _report(
                    rows, unfit, f"are not in the form that the prompts ask for: {name}",
                    f"Store answers in the form that the prompts ask for ({name}), or change the "
                    "prompts.",
                )
            ),
        )  # fmt: skip


def _exponents(
    context: PreflightContext,
    scored: ReferenceAnswers | None,
    rows: Sequence[PromptRow],
    plain: dict[int, str],
) -> Iterator[CheckFinding]:
    """Whole numbers with an exponent, unless the reward compares their values."""
    refused = _refused(context, scored, {id(rows[at]): text for at, text in plain.items()})
    if plain and (refused is None or refused >= _MIN_REFUSED):
        yield from _report(
            rows, list(plain),
            "are whole numbers with an exponent, as programs write large ones (1.23457e+07)",
            "Store whole numbers with all their digits; check that none were lost.",
            "info" if refused is None else "warning",
        )  # fmt: skip


def _outside_pattern(
    context: PreflightContext,
    scored: ReferenceAnswers | None,
    rows: Sequence[PromptRow],
    outside: OutsidePattern | None,
) -> Iterator[CheckFinding]:
    """Answers without the pattern of the prompts, unless the reward reads 09:05 and 9:05 alike."""
    if outside is None:
        return
    padded = {id(rows[at]): text for at, text in outside.padded.items()}
    refused = _refused(context, scored, padded)
    if refused is None or refused >= _MIN_REFUSED:
        yield from _report(
            rows, outside.rows, f"are not in the form that the prompts ask for: {outside.pattern}",
            f"Store all answers as {outside.pattern}; check what the others mean, such as 1:20 for "
            "13:20.",
            "info" if refused is None else "warning",
        )  # fmt: skip


def _other_decimals(context: PreflightContext) -> Iterator[CheckFinding]:
    """Answers, and columns that the reward reads, with a decimal comma for the prompt's point."""
    rows = list(spread_rows(context.rows, _MAX_ROWS))
    prompts = ["\n".join(row.texts()) for row in rows]
    reward = context.reward
    names = dict.fromkeys((*reward.parameters, *reward.keywords)) if reward else {}
    series = {"answers": [row.answer or "" for row in rows]}
    series |= {
        f"values of {name!r}": [_text(row.columns.get(name)) for row in rows] for name in names
    }
    for title, values in series.items():
        found = with_other_decimals(prompts, values)
        if found:
            yield CheckFinding(
                "warning",
                f"{part_of(len(found), len(rows), title, 'have')} "
                "a decimal comma where the prompts "
                "write a decimal point.",
                ("Store numbers with a decimal point and without thousands separators.",),
                tuple(f"{rows[at].location}: {values[at]!r:.80}" for at in found[:_SHOWN]),
                {"share": len(found) / len(rows)},
            )
            return


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _scored(context: PreflightContext) -> ReferenceAnswers | None:
    """The scored answers; None if there is no reward or it fails."""
    try:
        answers = context.reference_answers
    except DataError:  # REW103 reports it
        return None
    return answers if answers and answers.threshold is not None else None


def _report(
    rows: Sequence[PromptRow], found: Sequence[int], words: str, advice: str,
    severity: Severity = "warning",
) -> Iterator[CheckFinding]:  # fmt: skip
    if found:
        yield CheckFinding(
            severity,
            f"{part_of(len(found), len(rows), 'answers', words)}.",
            (advice,),
            tuple(f"{rows[at].location}: {rows[at].answer!r:.80}" for at in found[:_SHOWN]),
            {"share": len(found) / len(rows)},
        )


def _mixed(
    context: PreflightContext,
    scored: ReferenceAnswers | None,
    rows: Sequence[PromptRow],
    prompts: Sequence[str],
    finals: Sequence[str],
) -> Iterator[CheckFinding]:
    for form in mixed_forms(finals, prompts):
        refused = _refused(context, scored, {id(rows[at]): text for at, text in form.bare.items()})
        if refused is not None and refused < _MIN_REFUSED:
            continue
        words = f"have {form.name} and others do not"
        words += "; the reward refuses these answers in the form of the others" if refused else ""
        severity: Severity = "info" if refused is None else "warning"
        yield from _report(
            rows, form.rows, words, "Write all answers in one form, or compare them by value.",
            severity,
        )  # fmt: skip


def _outside_choices(
    context: PreflightContext, rows: Sequence[PromptRow], choices: Sequence[str]
) -> Iterator[CheckFinding]:
    """Answers that are none of those that the prompts offer; without a reward, a note."""
    if choices:
        names = ", ".join(choices)
        yield from _report(
            rows, range(len(rows)), f"are none of those that the prompts ask for: {names}",
            "Check that this is the column of the answers, and store them as prompts ask for them.",
            "info" if context.reward is None else "warning",
        )  # fmt: skip


def _other_spelling(
    context: PreflightContext,
    scored: ReferenceAnswers | None,
    rows: Sequence[PromptRow],
    prompts: Sequence[str],
    finals: Sequence[str],
) -> Iterator[CheckFinding]:
    """Answers that the prompt spells with other letters, which the reward refuses."""
    spelled = {
        at: text for at, (prompt, answer) in enumerate(zip(prompts, finals, strict=True))
        if (text := prompt_spelling(prompt, answer))
    }  # fmt: skip
    if len(spelled) < _MIN_SPELLED * len(rows):
        return
    refused = _refused(context, scored, {id(rows[at]): text for at, text in spelled.items()})
    if refused is not None and refused >= _MIN_REFUSED:
        yield from _report(
            rows, list(spelled),
            "lack the case or accents that the prompt has; the reward refuses the prompt's "
            "spelling",
            "Store answers as the prompts spell them, or compare without case and accents.",
        )  # fmt: skip


def _extra_line(
    context: PreflightContext,
    scored: ReferenceAnswers | None,
    rows: Sequence[PromptRow],
    line: str,
    rest: dict[int, str],
) -> Iterator[CheckFinding]:
    if not rest:
        return
    refused = _refused(context, scored, {id(rows[at]): text for at, text in rest.items()})
    if refused is not None and refused < _MIN_REFUSED:
        return
    yield from _report(
        rows, list(rest), f"have a line that no prompt asks for: {line!r:.40}",
        "Keep the answer alone in its column; the reward compares the line, too.",
        "warning" if refused is not None else "info",
    )  # fmt: skip


def _refused(
    context: PreflightContext, scored: ReferenceAnswers | None, texts: dict[int, str]
) -> float | None:
    """Share of rows whose answer in another form earns less than half of the reward.

    Args:
        context: with the reward function.
        scored: the answers in their own form.
        texts: answers in another form, by the id of their row.

    Returns:
        None if it cannot be known.
    """
    if context.reward is None or scored is None:
        return None
    chosen = [
        at for at, row in enumerate(scored.rows) if id(row) in texts and not scored.missed[at]
    ]
    if not chosen:
        return None
    responses = [format_answer(scored.answer_format, texts[id(scored.rows[at])]) for at in chosen]
    try:
        rewards = context.reward([scored.rows[at] for at in chosen], responses).total
    except DataError:  # REW103 reports it
        return None
    parts = scored.lost_parts(chosen, rewards)
    return sum(part > _MIN_REFUSED for part in parts) / len(parts) if parts else None
