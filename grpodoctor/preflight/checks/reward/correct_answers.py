"""REW101."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.answer_variants import asked_formats
from grpodoctor.preflight.answers.constructed_answers import (
    answer_formats,
    format_answer,
    wrong_answer,
)
from grpodoctor.preflight.answers.data_repairs import helpful_repair
from grpodoctor.preflight.answers.reference_answers import (
    OWN_SOLUTIONS,
    REQUIRES_ANSWERS,
    REQUIRES_REWARD,
    ReferenceAnswers,
)
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.preflight.texts.normal_form import number_of, numbers_of
from grpodoctor.rules.base import Severity
from grpodoctor.support.numbers import count_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_SHOWN = 4
_MOST = 0.8
"""Share of the rows that count as nearly all, for a fault of the whole column."""
_ALONE = 6
"""Rows that are scored one by one."""
_LEAST_GAP = 1e-3
"""Ten times what trainers add to the standard deviation of a group's rewards."""
_SOLUTION_WORDS = 6
"""Words that make an answer a worked solution."""
_MIN_PARAMETERS = 0.95
"""Share of prompts with the number of their answer from which it is part of the question."""
_FORMAT_ADVICE = "Set the format of a correct answer with --gold-format."
_UNKNOWN_ADVICE = (
    "Give the format of a correct answer, for example --gold-format 'Final: {answer}'; the other "
    "checks of the reward need it."
)
_COLUMN_ADVICE = "Check that the function reads a column that the data has."
_PARSER_ADVICE = "Check what the parser of the reward function extracts from these answers."


_MOST_BY_CHANCE = 0.05
"""Share of rows in which the answer of another row may be right."""


class CorrectAnswersNotRewarded(Check):
    """The reward function does not reward correct answers.

    What it sees:
        Writes the answers of the data in the usual formats (in a box, after ####, in answer tags,
        …), in formats that most prompts ask for (a quoted `Label: X`, tags, JSON, code fences), or
        in the format of --gold-format, and scores them. Reports correct answers that earn no more
        than an empty response. If the function separates most correct answers from wrong ones, it
        also reports correct answers that earn no more than a wrong one.

        A few rows of each kind are scored besides: of each source or other category, with an empty
        column, with negative, decimal or long numbers, letters, words, LaTeX, quotation marks.
        Reports a kind of rows whose correct answers earn nothing, while those of others do.

        If the data has no usual column of answers, those columns are tried that the function reads
        by name, and then others, for functions that verify a response by themselves; unit tests are
        answered by programs that look the tested inputs up. Rows of other tasks are left out: those
        for which the function returns None, and a part whose prompts ask for another format, in
        which their answers are rewarded.

        If no answer earns a reward, repairs of the data are tried: numbers as text, JSON that was
        encoded twice, Python's representation, text in place of messages, the name of a column that
        the function reads. So are simpler answers, in the column and in the response: flat JSON,
        numbers without separators, units or currency signs, one case, ASCII letters, one line.
        The repair that helps is named. So are a penalty that makes correct answers worth less than
        an empty response, a reward of the wrong sign, such as a count of errors, answers that earn
        more than wrong ones only in a batch of one, or only next to these, and a difference from
        wrong answers that is nearly nothing. Otherwise, the finding is critical only if the format
        is certain: given by --gold-format, or a box, #### or answer tags in the prompts. If not,
        the function may read a format that the check does not know, and the finding says so.

    Why it matters:
        If a correct answer does not raise the reward, the policy learns nothing and the run looks
        as if its prompts were too hard. A parser that misses the answer is the most frequent cause
        of rewards that stay at zero.

    What to do:
        Check the listed rows. Set the answer format with --gold-format, and ask for it in the
        prompt.

    When it is wrong:
        The target of a puzzle is no answer, so it earns nothing. If nearly every prompt contains
        its answer as a number, that is a note. A reward that runs code or asks a judge model may
        need more than a short answer. Put a full solution into the answer
        column, or give a --gold-format.

    References:
        TRL issue 3903: the format is learned, accuracy stays at zero.
    """

    code: ClassVar[str] = "REW101"
    name: ClassVar[str] = "correct-answers-not-rewarded"
    former_names: ClassVar[tuple[str, ...]] = ("gold-not-rewarded",)
    summary: ClassVar[str] = "The reward function does not reward correct answers."
    critical_share: ClassVar[float] = 0.5
    """Share of unrewarded correct answers from which the finding is critical."""
    min_share: ClassVar[float] = 0.05
    """Share of unrewarded correct answers below which the finding is a note: every parser of
    formulas misses a few answers of a real set, such as whole sentences."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Score the data's own answers."""
        if context.reward is None:
            return REQUIRES_REWARD
        answers = context.reference_answers
        if answers is None:
            return REQUIRES_ANSWERS
        missed = _missed_rows(answers)
        if inverted := _inverted(context):
            return (inverted,)
        of_kind = (
            *_kinds_of_rows(context),
            *_whole_solutions(answers),
            *_tiny_gap(answers),
            *_other_tasks(context),
        )
        if not missed:
            return of_kind
        details = tuple(f"{row.location}: {row.answer}" for row in missed[:_SHOWN])
        if len(missed) == len(answers.rows):
            return (_none_rewarded(context, answers, details), *of_kind)
        share = len(missed) / len(answers.rows)
        summary = (
            f"{len(missed)} of {len(answers.rows)} correct answers earn no more than an empty or a "
            "wrong one."
        )
        example = format_answer(answers.answer_format, "ANSWER")
        severity: Severity = "critical" if share > self.critical_share else "warning"
        return (
            CheckFinding(
                "info" if share < self.min_share else severity,
                summary,
                (_PARSER_ADVICE,),
                (f"format: {answers.format_name}, {example!r}", *details),
                {"share": share},
            ),
            *of_kind,
        )


def _other_tasks(context: PreflightContext) -> Iterator[CheckFinding]:
    """Rows that no check of the reward reads."""
    if context.leaves_out_tasks:
        yield CheckFinding(
            "info",
            f"The checks of the reward read {len(context.reward_rows)} of {len(context.rows)} "
            "rows; the others belong to other tasks.",
            ("Run preflight on those rows alone, in a file of their own.",),
            ("other tasks: the function returns None, or the prompts ask for another format",),
        )


def _missed_rows(answers: ReferenceAnswers) -> list[PromptRow]:
    """Rows whose correct answer is not recognized.

    In a few rows the answer of another row is right by chance, such as a query with the same
    result. The correct answer then earns what it earns elsewhere: these rows are left out.
    """
    missed = [at for at, is_missed in enumerate(answers.missed) if is_missed]
    usual = [value for value, out in zip(answers.rewards, answers.missed, strict=True) if not out]
    chance = {at for at in missed if usual and answers.rewards[at] >= median(usual)}
    if len(chance) < _MOST_BY_CHANCE * len(answers.rows):
        missed = [at for at in missed if at not in chance]
    return [answers.rows[at] for at in missed]


def _inverted(context: PreflightContext) -> CheckFinding | None:
    """Right answers that earn least."""
    found = context.inverted_reward
    if found is None:
        return None
    return CheckFinding(
        "critical",
        f"Correct answers earn {found.right:.3g}, less than wrong ones ({found.wrong:.3g}) and "
        f"than an empty response ({found.empty:.3g}).",
        ("Change the sign: an error or a distance must lower the reward, for example 1 - error.",),
        (f"format: {format_answer(found.answer_format, 'ANSWER')!r:.120}",),
        {"right": found.right, "wrong": found.wrong, "empty": found.empty},
    )


def _kinds_of_rows(context: PreflightContext) -> tuple[CheckFinding, ...]:
    """A kind of rows in which correct answers earn nothing, or the function fails."""
    raising, fault = context.slice_faults.raising, context.slice_faults.unrewarded
    if raising:
        summary = (
            f"The reward function fails on rows with {raising.name} "
            f"({count_of(raising.rows, 'row')})."
        )
        advice = "Handle these rows in the reward function, or remove them."
        return (CheckFinding("critical", summary, (advice,), (raising.error,)),)
    if fault:
        summary = (
            f"Correct answers earn nothing in {fault.failed} of {fault.tried} rows with "
            f"{fault.name}; {context.such_rows(fault.rows)}."
        )
        advice = "Check how the reward function reads these rows, or correct their answers."
        return (CheckFinding("warning", summary, (advice,), (), {"rows": float(fault.rows)}),)
    if scaled := context.slice_faults.scaled:
        summary = (
            f"Correct answers earn {scaled.own:.3g} in rows with {scaled.name} and "
            f"{scaled.others:.3g} in others; {context.such_rows(scaled.rows)}."
        )
        advice = "Give the rewards of all kinds of rows the same scale, such as 0 to 1."
        return (CheckFinding("warning", summary, (advice,), (), {"rows": float(scaled.rows)}),)
    return ()


def _whole_solutions(answers: ReferenceAnswers) -> Iterator[CheckFinding]:
    """Final numbers that earn nothing, while the data's worked solution does as a whole."""
    if not answers.format_name.startswith(OWN_SOLUTIONS) or answers.is_graded:
        return
    finals = [final_answer(row.answer or "") for row in answers.rows]
    whole = [
        at
        for at, (final, solution) in enumerate(zip(finals, answers.answers, strict=True))
        if number_of(final) is not None and len(solution.split()) >= _SOLUTION_WORDS
    ]
    others = [
        rewards for name, rewards in answers.by_format.items() if not name.startswith(OWN_SOLUTIONS)
    ]
    paid = [at for at in whole if any(each[at] > answers.empty[at] for each in others)]
    if len(whole) > _MOST * len(finals) and len(paid) <= (1 - _MOST) * len(whole):
        at = whole[0]
        yield CheckFinding(
            "critical",
            "Only the data's whole worked solution earns the reward; its final answer, such as "
            f"{finals[at]!r:.40}, earns nothing.",
            ("Extract the final answer from the column when the data is loaded, for example the "
             "text after ####.",),
            (f"{answers.rows[at].location}: {answers.answers[at]!r:.120}",),
        )  # fmt: skip


def _none_rewarded(
    context: PreflightContext, answers: ReferenceAnswers, details: tuple[str, ...]
) -> CheckFinding:
    """No format earns a reward: the function is at fault if the format is known for certain."""
    own = context.settings.gold_format
    repair = context.reward and helpful_repair(
        context.reward, answers.rows, context.settings, answers.requested
    )
    if not own and not repair and _are_parameters(answers):
        return CheckFinding(
            "info",
            f"The prompts contain all {len(answers.rows)} answers as numbers, and none is "
            "rewarded: perhaps a parameter of the task.",
            (_UNKNOWN_ADVICE,),
            details,
        )
    if repair:
        return CheckFinding(
            "critical",
            f"{repair.summary}, so none of {len(answers.rows)} correct answers is rewarded.",
            (repair.advice,),
            details,
        )
    if other := context.reward and _in_other_batches(context.reward, answers, context.settings):
        return other
    if below := _below_empty(answers):
        return below
    marks = asked_formats(["\n".join(row.texts()) for row in answers.rows])
    tried = len(answer_formats(context.settings)) + len(answers.requested)
    known = "the format of --gold-format" if own else ", ".join(marks.values())
    paid = _empty_reward(answers)
    if known or paid:
        summary = (
            f"None of {len(answers.rows)} correct answers earns more than an empty response{paid}, "
            f"in any of {tried} formats."
        )
        if marks and not own:
            details = (f"format that the prompts ask for: {known}", *details)
        advice = (_PARSER_ADVICE, _COLUMN_ADVICE, _FORMAT_ADVICE)
        return CheckFinding("critical", summary, advice, details)
    summary = (
        f"The reward's answer format is unknown: {len(answers.rows)} correct answers earn nothing "
        f"in {tried} formats."
    )
    read = tuple(f"read from the prompts: {form!r}" for form in answers.requested[:_SHOWN])
    return CheckFinding("warning", summary, (_UNKNOWN_ADVICE, _PARSER_ADVICE), (*read, *details))


def _in_other_batches(
    reward: UserReward, answers: ReferenceAnswers, settings: RunSettings
) -> CheckFinding | None:
    """Correct answers that earn more than wrong ones, but only alone or next to wrong ones."""
    forms = dict.fromkeys((*answer_formats(settings).values(), *answers.requested))
    rows = answers.rows[:_ALONE]
    for form in forms:
        right = [format_answer(form, text) for text in answers.answers[:_ALONE]]
        wrong = [
            format_answer(form, wrong_answer(text, answers.answers))
            for text in answers.answers[:_ALONE]
        ]
        try:
            usual = zip(reward(rows, right).total, reward(rows, wrong).total, strict=True)
            mixed = reward([*rows, *rows], [*right, *wrong]).total
            alone = [
                [reward([row], [text]).total[0] for text in texts]
                for row, *texts in zip(rows, right, wrong, strict=True)
            ]
        except DataError:
            continue
        details = (f"format: {format_answer(form, 'ANSWER')!r:.120}",)
        if _are_most(one > other for one, other in usual):
            return None  # the batch is no matter: an empty response earns as much
        if _are_most(one > other for one, other in alone):
            return CheckFinding(
                "critical",
                "Correct answers earn more than wrong ones only in a batch of one: the function "
                "takes the answers of other rows.",
                ("Pair each completion with the answer of its own row, for example with zip().",),
                details,
            )
        if _are_most(r > w for r, w in zip(mixed, mixed[len(rows) :], strict=False)):
            return CheckFinding(
                "critical",
                "Correct answers earn more only in a batch with wrong ones: the reward depends on "
                "the other responses of the batch.",
                ("Return the score of each response alone: trainers compare those of a group.",),
                details,
            )
    return None


def _are_most(better: Iterable[bool]) -> bool:
    rows = list(better)
    return sum(rows) >= _MOST * len(rows)


def _tiny_gap(answers: ReferenceAnswers) -> Iterator[CheckFinding]:
    """Rewards of correct and wrong answers that nearly agree."""
    gaps = [
        right - wrong
        for right, wrong, missed in zip(answers.rewards, answers.wrong, answers.missed, strict=True)
        if not missed and right > wrong
    ]
    if answers.threshold is None or answers.is_graded or not gaps:
        return
    if (gap := median(gaps)) < _LEAST_GAP:
        yield CheckFinding(
            "warning",
            f"Correct answers earn only {gap:.2g} more than wrong ones.",
            (
                "Give correct answers a reward that is larger by about 1: trainers add 1e-4 to the "
                "standard deviation of a group, so such a gap gives hardly a gradient.",
            ),
            figures={"gap": gap},
        )


def _below_empty(answers: ReferenceAnswers) -> CheckFinding | None:
    """Correct answers that earn more than wrong ones, and less than no answer at all."""
    rows = zip(answers.rewards, answers.wrong, answers.empty, strict=True)
    below = [(right, empty) for right, wrong, empty in rows if wrong < right < empty]
    if len(below) <= _MOST * len(answers.rows):
        return None
    right, empty = (median(each) for each in zip(*below, strict=True))
    return CheckFinding(
        "critical",
        f"Correct answers earn {right:.3g}, and an empty response earns {empty:.3g}: a penalty "
        "outweighs the reward.",
        ("Limit the penalty, for example of the length, far below the reward of an answer.",),
        (f"format: {format_answer(answers.answer_format, 'ANSWER')!r:.120}",),
        {"right": right, "empty": empty},
    )


def _are_parameters(answers: ReferenceAnswers) -> bool:
    """Whether nearly every prompt contains its answer as a number, and few contain another's.

    The target of a puzzle is such a number: the answer is what reaches it.
    """
    numbers = [number_of(answer) for answer in answers.answers]
    prompts = [set(numbers_of("\n".join(row.texts()))) for row in answers.rows]
    own = sum(number in prompt for number, prompt in zip(numbers, prompts, strict=True))
    others = numbers[len(numbers) // 2 :] + numbers[: len(numbers) // 2]
    other = sum(number in prompt for number, prompt in zip(others, prompts, strict=True))
    return own >= _MIN_PARAMETERS * len(numbers) and other < len(numbers) / 2


def _empty_reward(answers: ReferenceAnswers) -> str:
    """The reward of an empty response, if it is above zero."""
    rewards = [reward for reward in answers.empty if reward > 0]
    return f" (worth {max(rewards):.3g} in {count_of(len(rewards), 'row')})" if rewards else ""
