"""REW102."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.completions.reward_relations import (
    growth_with_length,
    limitless_growth,
    truncated_numbers,
)
from grpodoctor.preflight.answers.constructed_answers import (
    COPIED_PROMPT,
    EARLY_EXIT,
    EMPTY,
    EVERY_LABEL,
    JUDGED,
    MANY_WORDS,
    NEARLY_RIGHT,
    NEGATED,
    NEVER_ENDING,
    NO_ANSWER,
    OFF_BY_ONE,
    ONE_PART,
    OTHER_FORMULA,
    REPEATED_TAGS,
    SCRAMBLED,
    SEVERAL,
    SEVERAL_INSIDE,
    SEVERAL_LINES,
    THOUGHT_ONLY,
    VALUES_ALONE,
    WRONG,
    BadCompletion,
    bad_completions,
)
from grpodoctor.preflight.answers.kinds.accepted_answers import (
    above_chance,
    accepted_by_chance,
    rate_of_one_label,
)
from grpodoctor.preflight.answers.multiple_choice import (
    closed_set,
    count_options,
    named_classes,
    option_letter,
)
from grpodoctor.preflight.answers.reference_answers import (
    NO_ANSWER_REWARDED,
    REQUIRES_ANSWERS,
    REQUIRES_REWARD,
    ReferenceAnswers,
)
from grpodoctor.preflight.answers.requested.requested_formats import requested_tags
from grpodoctor.preflight.answers.requested.source_tags import knows_thoughts
from grpodoctor.preflight.answers.stated_answers import final_answer, rows_stating_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.checks.reward.paid_parts import paid_parts
from grpodoctor.preflight.checks.reward.paid_silence import paid_silence
from grpodoctor.preflight.checks.reward.same_form import without_same_form
from grpodoctor.preflight.checks.reward.unanswered import free_findings
from grpodoctor.preflight.checks.reward.unfair_puzzles import paid_targets, unfair_puzzles
from grpodoctor.preflight.checks.reward.unread_tests import unread_tests
from grpodoctor.preflight.checks.reward.wrong_in_one_place import ignored_places
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.preflight.texts.normal_form import words_of
from grpodoctor.rules.base import Severity
from grpodoctor.trainer.rewards.user_reward import UserReward

_SHOWN = 3
_MAX_CHARACTERS = 120
_ONE_ANSWER = "Use only the last answer, or none if there are several."
_ADVICE = {
    WRONG: "Compare answers by value, and check the listed rows.",
    "long wrong answer": "Do not reward length where the answer is wrong.",
    EMPTY: "Give no reward to an empty response.",
    NO_ANSWER: "Reward the format only if it contains an answer, or far less.",
    COPIED_PROMPT: "Parse only the response, not the prompt with it.",
    SEVERAL: _ONE_ANSWER,
    SEVERAL_LINES: _ONE_ANSWER,
    SEVERAL_INSIDE: _ONE_ANSWER,
    NEARLY_RIGHT: "Compare the whole number: not its first digits, and not with a wide tolerance.",
    OTHER_FORMULA: "Compare the whole answer, with all of its numbers, signs and brackets.",
    REPEATED_TAGS: "Count each tag once.",
    OFF_BY_ONE: "Compare counts exactly; a tolerance belongs to measured values.",
    ONE_PART: "Compare all parts of the answer, as a set.",
    EVERY_LABEL: "Let labels that are not in the answer cost reward: compare sets, or use F1.",
    MANY_WORDS: "Let words that are not in the reference cost reward, for example with F1.",
    VALUES_ALONE: "Parse the JSON and compare its fields; do not search the values in the text.",
    SCRAMBLED: "Compare the words themselves, not their letters.",
    NEGATED: "Compare the whole answer; do not search for the reference in it.",
    THOUGHT_ONLY: "Read the answer behind the thought only.",
    JUDGED: "Quote the response in the judge's prompt, and read only the judge's last score.",
    NEVER_ENDING: "Give programs that exceed their time limit the reward of a wrong answer.",
    EARLY_EXIT: "Do not rely on the exit status: require what the tests print at their end.",
}
_NOT_FOR_ALL = frozenset(
    {
        NEARLY_RIGHT,
        OTHER_FORMULA,
        OFF_BY_ONE,
        SEVERAL_INSIDE,
        SEVERAL_LINES,
        ONE_PART,
        VALUES_ALONE,
        EVERY_LABEL,
        MANY_WORDS,
        JUDGED,
        NEVER_ENDING,
        SCRAMBLED,
        NEGATED,
        THOUGHT_ONLY,
    }
)
"""Kinds of responses that need answers of a certain form."""
_ENDLESS_SECONDS = 15.0
"""Wait for the reward of one program that never ends. Functions that limit the time of a program
allow it a few seconds."""
_NEVER_CRITICAL = frozenset(
    {
        SEVERAL,
        SEVERAL_INSIDE,
        SEVERAL_LINES,
        NEARLY_RIGHT,
        OTHER_FORMULA,
        OFF_BY_ONE,
        ONE_PART,
        VALUES_ALONE,
        SCRAMBLED,
        NEGATED,
        THOUGHT_ONLY,
    }
)
"""Kinds that contain or resemble a correct answer."""
_OF_A_PART = (NEARLY_RIGHT, OTHER_FORMULA, OFF_BY_ONE, ONE_PART, SCRAMBLED, NEGATED, VALUES_ALONE)
"""Kinds for which a measure of similarity or distance gives a part of the reward."""
_ROUNDED = re.compile(
    r"\b(?:about|approximate(?:ly)?|estimate|nearest|round(?:ed)?|within|tolerance)\b|\u2248",
    re.IGNORECASE,
)
"""Questions that ask for a value with a tolerance."""


@dataclass(frozen=True, slots=True)
class _AnsweredRow:
    row: PromptRow
    right: float
    """Reward of the correct answer."""
    floor: float
    """Reward of an empty response, at least zero."""
    completions: tuple[BadCompletion, ...]


class HackableReward(Check):
    """Bad responses are rewarded like correct answers.

    What it sees:
        For rows whose correct answer is rewarded, scores a wrong answer, short and long, an empty
        response, the format without an answer, a copy of the prompt, several answers at once, on
        one line, on lines of their own and in the place of one, numbers that are nearly right (with
        digits missing, a digit too many, or a tenth larger), and answers with another number, sign
        or bracket. If all answers are whole and the prompts do not ask for a rounded value, also
        the next number. If the prompts pose puzzles, also their target without an expression, and
        expressions that break the rules: numbers left out, used twice or not given. If
        the answers are lists, also one element alone and all labels of the data at once; if they
        are sentences, the words of several of them; if they are words, also their letters in
        another order, and the answer behind "not". Also the right answer in the thought alone, and
        a score, as a judge model writes it. If the prompts ask for tags, also many of them before a
        wrong answer; if the answers are programs in Python, also one that exits before the tests
        run, and one that never ends.
        Right answers are also changed in one place: each field of an object, the name of a call, a
        value, condition or comparison of a query, the last test of a program, an element of a list.
        Right programs are scored with a last test that no program passes.
        Reports the places that do not count in half of the rows, and further fields that earn more
        than the right answer.
        Wrong answers are also scored in a few rows of each kind (source, sort of answer).
        Without answers, a dozen responses are scored: texts, lines, tags, code, a copy of the
        prompt, a judge's verdict. Reports if all earn the same reward, if the verdict is the best
        of them, if they differ only in rows of another source, if filler of three lengths earns
        more and more, if a line break behind responses changes their rewards, and if words that the
        prompt asks for do not count next to a comma or full stop.
        A response without an answer must not earn far more than a wrong one. Correct answers behind
        filler must not earn far more, and of two decimal numbers the nearer
        one must not earn less.
        Reports the share of rows in which such a response earns as much as the correct answer. If
        that share is small, it reports the mean share of the correct answer's reward.
        A copy of a prompt that lists all answers, such as "Answer yes or no.", is right by chance,
        and reported above that level.

    Why it matters:
        Training finds such holes. The model learns the response that earns the reward without
        solving the task, and the reward curve looks healthy meanwhile.

    What to do:
        Fix the reported hole before the run.

    When it is wrong:
        Another query may give the same rows by chance.

        An answer can be so short that another text contains it (a digit, a letter). That is also a
        bug in the parser, but a minor one. The check says little about rewards that compare the
        responses of a group with each other.

    References:
        Visual-RFT issue 176: an empty answer is a substring of any text, and was rewarded.
    """

    code: ClassVar[str] = "REW102"
    name: ClassVar[str] = "hackable-reward"
    former_names: ClassVar[tuple[str, ...]] = ("undeserved-reward",)
    summary: ClassVar[str] = "Bad responses are rewarded like correct answers."
    min_row_share: ClassVar[float] = 0.05
    """Share of rows from which a response is reported; accidental correct answers are rarer."""
    min_rows: ClassVar[int] = 4
    """Rows that must reward a response: as many as that share of 64 rows. Of the 16 rows on which a
    slow function is tried, fewer are accidents of their answers."""
    constant_share: ClassVar[float] = 0.9
    """Share of rows that reward a wrong answer and an empty response, from which both are one
    fault."""
    min_growth: ClassVar[float] = 1.5
    """By which filler must multiply the reward of a correct answer, to be reported."""
    max_reward_share: ClassVar[float] = 0.5
    """Share of the correct answer's reward above which a response is reported: the format is then
    worth more than a correct answer."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Score responses that deserve nothing."""
        if context.reward is None:
            return REQUIRES_REWARD
        if context.reference_answers is None:
            return [*self._without_answers(context, context.reward)] or REQUIRES_ANSWERS
        answers = context.reference_answers
        rows = _rewarded_rows(context)
        if not rows or context.inverted_reward:
            return NO_ANSWER_REWARDED
        findings: list[CheckFinding] = []
        for kind in range(len(rows[0].completions)):
            tried = _without_own_answer(rows, kind)
            try:
                rewards = _rewards(context.reward, tried, kind) if tried else []
            except DataError as error:  # REW103 reports the others
                findings += _hang(error) if tried[0].completions[kind].kind == NEVER_ENDING else []
                continue
            if rewards:
                findings += self._findings(tried, kind, rewards, answers.is_graded)
        places: Iterator[CheckFinding] = iter(())
        if not any(finding.summary.startswith(WRONG) for finding in findings):
            thinks = knows_thoughts(context.reward, context.rows)
            places = ignored_places(context.reward, answers, thinks=thinks)
        return [
            *paid_targets(answers),
            *unfair_puzzles(context.reward, answers),
            *unread_tests(context.reward, answers),
            *paid_silence(answers),
            *paid_parts(context.reward, answers),
            *self._relations(context, context.reward, answers),
            *self._folded(findings),
            *places,
        ]

    def _without_answers(
        self, context: PreflightContext, reward: UserReward
    ) -> Iterator[CheckFinding]:
        """What is known of a reward whose task has no reference answers."""
        yield from free_findings(reward, context.reward_rows, _ADVICE[JUDGED])
        growth = limitless_growth(reward, context.reward_rows)
        if growth >= self.min_growth:
            yield CheckFinding(
                "warning",
                f"Meaningless filler earns {growth:.2g} times as much at 1000 sentences as at 100: "
                "the reward grows with the length without a limit.",
                (
                    "Limit what length can earn. If the reward is a distance from a wanted length, "
                    "its sign is wrong: the distance must lower the reward.",
                ),
                figures={"growth": growth},
            )

    def _relations(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Rewards that grow with length, and numbers of which only the whole part counts."""
        growth = growth_with_length(reward, answers)
        if growth >= self.min_growth:
            yield CheckFinding(
                "warning",
                f"Correct answers earn {growth:.2g} times as much behind 100 sentences of filler.",
                ("Do not let the reward of a correct answer grow with its length.",),
                figures={"growth": growth},
            )
        if paid := context.slice_faults.paid:
            yield CheckFinding(
                "warning",
                f"Wrong answers earn the full reward in {paid.failed} of {paid.tried} rows with "
                f"{paid.name}; {context.such_rows(paid.rows)}.",
                ("Check how the reward function compares answers in these rows.",),
                figures={"rows": float(paid.rows)},
            )
        truncated, tried = truncated_numbers(reward, answers)
        if truncated > tried / 2:
            yield CheckFinding(
                "warning",
                f"{truncated} of {tried} decimal answers: a number further away is accepted, a "
                "nearer one is not.",
                ("Compare decimals with a tolerance; do not cut them off with int().",),
                figures={"share": truncated / tried},
            )

    def _folded(self, findings: list[CheckFinding]) -> list[CheckFinding]:
        """One finding if nearly every row rewards every bad response: the answer does not count."""
        findings = without_same_form(findings)
        whole = [
            finding
            for finding in findings
            if finding.figures.get("share", 0) >= self.constant_share
        ]
        kinds = [finding.summary.partition(":")[0] for finding in whole]
        if not {WRONG, "empty response"} <= set(kinds):
            return findings
        summary = "The reward does not depend on the answer: any response earns the full reward."
        advice = ("Check that the function reads the response and this column of answers.",)
        details = tuple(f"{kind}: full reward" for kind in kinds)
        return [
            CheckFinding("critical", summary, advice, details, {"share": whole[0].figures["share"]})
        ]

    def _findings(
        self, rows: Sequence[_AnsweredRow], kind: int, rewards: Sequence[float], graded: bool
    ) -> Iterator[CheckFinding]:
        name = rows[0].completions[kind].kind
        full = [row for row, reward in zip(rows, rewards, strict=True) if reward >= row.right]
        share = len(full) / len(rows)
        by_listing = accepted_by_chance([row.row for row in rows])
        if name == COPIED_PROMPT:
            by_listing = _rate_by_listing(rows)
        if name in (SEVERAL, SEVERAL_LINES, SEVERAL_INSIDE):
            by_listing = max(by_listing, rate_of_one_label([row.row for row in rows]))
        if len(full) >= self.min_rows and share >= self.min_row_share + by_listing:
            is_severe = share > 0.5 and name not in _NEVER_CRITICAL
            severity: Severity = "critical" if is_severe else "warning"
            summary = f"{name}: earns the full reward in {len(full)} of {len(rows)} rows."
            advice = _ADVICE[name]
            if graded and name in (SEVERAL, SEVERAL_LINES):
                summary = f"{summary[:-1]}; text around the reference costs nothing."
                advice = _ADVICE[MANY_WORDS]
            details = tuple(
                f"{row.row.location}: {row.completions[kind].text[:_MAX_CHARACTERS]!r}"
                for row in full[:_SHOWN]
            )
            yield CheckFinding(severity, summary, (advice,), details, {"share": share})
            return
        worth = _mean_share(rows, rewards)
        # A measure of similarity gives a part of the reward to other references.
        # So does a measure of the distance, and partial credit.
        is_graded = graded or name in _OF_A_PART
        if worth > max(self.max_reward_share, by_listing) and not is_graded:
            summary = f"{name}: earns {worth:.0%} of the correct answer's reward."
            details = (repr(rows[0].completions[kind].text[:_MAX_CHARACTERS]),)
            yield CheckFinding("warning", summary, (_ADVICE[name],), details, {"worth": worth})


def _rewarded_rows(context: PreflightContext) -> list[_AnsweredRow]:
    """Rows whose correct answer earns a reward, even if an empty response earns as much."""
    answers = context.reference_answers
    if answers is None:
        return []
    tags = requested_tags(["\n".join(row.texts()) for row in answers.rows])
    return [
        _AnsweredRow(
            row,
            right=answers.rewards[index],
            floor=max(answers.empty[index], 0.0),
            completions=tuple(
                bad_completions(
                    row.prompt,
                    answers.answers[index],
                    answers.answers,
                    answers.answer_format,
                    tags,
                    index,
                )
            ),
        )
        for index, row in enumerate(answers.rows)
        if answers.rewarded[index] or answers.rewards[index] > 0
    ]


def _without_own_answer(rows: list[_AnsweredRow], kind: int) -> list[_AnsweredRow]:
    """The rows in which a completion is bad: a prompt that states its answer is a correct one.

    DAT111 reports those prompts; the reward function is right about them. Some kinds of responses
    exist only for some answers, such as numbers or lists.
    """
    name = rows[0].completions[kind].kind
    if name in _NOT_FOR_ALL:
        tried = [row for row in rows if row.completions[kind].text]
        exact = [row for row in tried if not _ROUNDED.search(row.row.prompt)]
        return exact if name == OFF_BY_ONE else tried
    if name != COPIED_PROMPT:
        return rows
    stating, _ = rows_stating_answer([each.row for each in rows])
    return [row for row, states in zip(rows, stating, strict=True) if not states]


def _rate_by_listing(rows: Sequence[_AnsweredRow]) -> float:
    """Share of rows that a copy of the prompt may get right because the prompt lists all answers.

    A prompt lists the letters of a multiple-choice question, or says "Answer yes or no." A parser
    that takes the last one takes the same in every row, or one at random if the order changes.
    """
    answers = [final_answer(row.row.answer or "") for row in rows]
    classes = closed_set(answers)
    listed: Counter[str] = Counter()
    for row, answer in zip(rows, answers, strict=True):
        options = count_options(row.row, answer)
        if options and (letter := option_letter(answer, options)):
            listed[letter] += 1
        elif len(named_classes(row.row.prompt, classes)) > 1:
            listed[" ".join(words_of(answer))] += 1
    if not listed:
        return 0.0
    return above_chance(listed.most_common(1)[0][1] / len(rows), len(rows))


def _rewards(reward: UserReward, rows: Sequence[_AnsweredRow], kind: int) -> list[float]:
    """Rewards of one kind of completion.

    Raises:
        DataError: if the function fails.
    """
    is_endless = rows[0].completions[kind].kind == NEVER_ENDING
    return reward(
        [row.row for row in rows],
        [row.completions[kind].text for row in rows],
        most_seconds=_ENDLESS_SECONDS if is_endless else math.inf,
    ).total


def _hang(error: DataError) -> list[CheckFinding]:
    """A program of the model stops the reward function."""
    summary = (
        "A program that never ends stops the reward function for more than "
        f"{_ENDLESS_SECONDS:.0f} seconds."
    )
    advice = "Run programs in a process of their own with a time limit of a few seconds."
    return [CheckFinding("critical", summary, (advice,), (str(error),))]


def _mean_share(rows: Sequence[_AnsweredRow], rewards: Sequence[float]) -> float:
    """Mean share of the correct answer's reward, above the reward of an empty response."""
    shares = [
        (reward - row.floor) / (row.right - row.floor)
        for row, reward in zip(rows, rewards, strict=True)
        if row.right > row.floor
    ]
    return fmean(shares) if shares else 0.0
