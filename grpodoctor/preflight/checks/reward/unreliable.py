"""REW103."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.completions.batch_relations import (
    changed_by_batch,
    changes_without_columns,
)
from grpodoctor.preflight.answers.completions.judge_replies import paid_refusal
from grpodoctor.preflight.answers.constructed_answers import (
    answer_formats,
    format_answer,
    wrong_answer,
)
from grpodoctor.preflight.answers.free_responses import (
    WORDS_OF_ROW,
    changed_rewards,
    reversed_rewards,
    score_free_responses,
)
from grpodoctor.preflight.answers.reference_answers import REQUIRES_REWARD, ReferenceAnswers
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of
from grpodoctor.trainer.rewards.user_reward import UserReward

_GROUPS, _GROUP_SIZE, _SINGLE = 8, 4, 4
"""Prompts with several responses in a batch, responses to each, and batches of one response."""
_UNUSUAL_RESPONSES = {
    "an empty response": "",
    "white space": " \n\t ",
    "an open box": "\\boxed{",
    "an open thought": "<think>\nand so on",
    "a long repetition": "so " * 2000,
    "characters of many scripts": "\u0000\u202e\U0001f600 \u00bd \u221a2 \uff11\uff12",
    "a number too large": "9" * 400,
    "not a number": "nan",
    "a hostile expression": "9**9**9**9",
}
_ORDINARY, _ORDINARY_RESPONSE = "an ordinary sentence", "The answer is 12."
_JUDGES_REPLY = "Score: 1"
_UNREACHABLE = re.compile(
    r"raised (?:\w*URLError|\w*Connect(?:ion|or)?\w*Error|\w*ConnectTimeout|MaxRetryError|"
    r"gaierror)\b|Connection refused|Name or service not known|name resolution"
)
"""Errors of a client whose server cannot be reached."""
_SCORE_ALL = "Return the reward of a wrong answer for anything that it cannot parse."


class UnreliableReward(Check):
    """The reward function fails on unusual responses, or is not deterministic.

    What it sees:
        Scores unusual responses: empty, cut off inside a format, very long, with strange characters
        or huge numbers. Reports if the function raises, hangs, or returns something other than a
        number. Reports if it fails on a batch, for example with one reward for all responses.
        Scores a batch of correct and wrong answers twice, the second time in the opposite order,
        and reports differences: a reward that is random, remembers responses, or comes back in
        another order than the responses. Reports also correct answers whose reward is another one
        if all responses of the batch are correct, arguments that the function changes in place, and
        responses whose reward is another one in a new process of the function. Scores groups, as
        GRPO does: right and wrong responses to the same prompts in one batch, and single responses
        in a batch of their own. Their rewards must be those of the same responses elsewhere.
        Without reference answers, a dozen responses are scored in two orders of the rows, in two
        orders of the responses, and in two processes. Responses with values of the row's own
        columns, and of the next row's, are scored in one batch, by prompt and one by one.
        Reports also columns that the function reads and that the config removes before it is
        called (`remove_unused_columns` of TRL).

        If the function calls a judge model through a client library, or through a helper of its
        module with such a name, the judge is replaced: by replies with scores, and by a refusal,
        which must not earn a good score or half of one. If its server cannot be reached, and the
        function fails for this reason alone, that is a note.

    Why it matters:
        A model writes such responses sooner or later, and a reward function that raises an
        exception ends the run. A reward that depends on chance or on other responses of the batch
        is noise that no group can average out.

    What to do:
        Catch what the parser raises and return the reward of a wrong answer. Seed a judge model.

    When it is wrong:
        A judge model is noisy by nature. The reported difference is then the noise of the
        advantages.

    References:
        None.
    """

    code: ClassVar[str] = "REW103"
    name: ClassVar[str] = "unreliable-reward"
    former_names: ClassVar[tuple[str, ...]] = ("unsteady-reward",)
    summary: ClassVar[str] = "The reward function fails on unusual responses, or is random."

    max_rounding_difference: ClassVar[float] = 1e-5
    """Difference of two rewards that the order of a batch causes in float32."""

    def examine(self, context: PreflightContext) -> CheckResult:
        """Score unusual responses, and the reference answers twice."""
        if context.reward is None:
            return REQUIRES_REWARD
        if not context.rows:
            return SkippedCheck("no prompts were given", "add --prompts")
        if removed := tuple(_removed_columns(context, context.reward)):
            return removed
        failures = tuple(_failures(context, context.reward))
        judged = tuple(_judge(context.reward, context.reward_rows))
        if failures:  # perhaps because the judge's server does not run yet
            return (*failures, *judged)
        try:
            return (*judged, *self._changes(context))
        except DataError as error:
            return (_batch_failure(error),)

    def _changes(self, context: PreflightContext) -> Iterator[CheckFinding]:
        answers = context.reference_answers
        if context.reward is None:
            return
        if answers is None:
            yield from _order(context.reward, context.reward_rows)
            return
        if answers.threshold is None:
            yield from _batches(context.reward, answers.rows)
        texts = [
            format_answer(
                answers.answer_format,
                wrong_answer(answer, answers.answers) if index % 2 else answer,
            )
            for index, answer in enumerate(answers.answers)
        ]
        first = context.reward(answers.rows, texts).total
        again = context.reward(answers.rows[::-1], texts[::-1]).total[::-1]
        changed, largest = self._differing(first, again)
        if changed:
            yield CheckFinding(
                "warning",
                f"{part_of(changed, len(texts), 'rewards', 'change')} by up to {largest:.3g} when "
                "scored again in the opposite order.",
                (
                    "Seed what is random in it, score each response independently, and return "
                    "rewards in the order of the responses.",
                ),
                figures={"largest": largest},
            )
            return
        yield from _edits(context.reward, answers.rows, texts)
        alone = answers.rewards
        changed_by_others = [
            abs(alone[index] - first[index])
            for index in range(0, len(first), 2)
            if abs(alone[index] - first[index]) > self.max_rounding_difference
        ]
        if changed_by_others:
            yield CheckFinding(
                "warning",
                f"{part_of(len(changed_by_others), len(first[::2]), 'rewards', 'change')} by up to "
                f"{max(changed_by_others):.3g} when other responses of the batch are wrong.",
                (
                    "Score each response independently: trainers compare the responses of a group "
                    "themselves, and a batch has several groups.",
                ),
                figures={"largest": max(changed_by_others)},
            )
            return
        in_groups = [*self._groups(context.reward, answers, texts, first)]
        yield from in_groups
        if not in_groups:
            yield from self._memory(context, context.reward, answers)

    def _groups(
        self,
        reward: UserReward,
        answers: ReferenceAnswers,
        texts: Sequence[str],
        alone: Sequence[float],
    ) -> Iterator[CheckFinding]:
        """Rewards of responses that share their batch with others to the same prompt."""
        chosen = range(min(_GROUPS, len(texts) // 2 * 2))
        wrong = [
            format_answer(answers.answer_format, wrong_answer(answer, answers.answers))
            for answer in answers.answers[: len(chosen)]
        ]
        rows = [answers.rows[at] for at in chosen for _ in range(_GROUP_SIZE)]
        group = [
            texts[at] if place % 2 else wrong[at] for at in chosen for place in range(_GROUP_SIZE)
        ]
        together = reward(rows, group).total[1::_GROUP_SIZE]
        changed, largest = self._differing([alone[at] for at in chosen], together)
        if changed:
            yield CheckFinding(
                "warning",
                f"{part_of(changed, len(chosen), 'rewards', 'change')} "
                f"by up to {largest:.3g} in a batch with "
                "several responses per prompt.",
                ("Pair each response with its own row; do not use the prompt as a key.",),
                figures={"largest": largest},
            )
            return
        few = chosen[:_SINGLE]
        single = [reward([answers.rows[at]], [texts[at]]).total[0] for at in few]
        changed, largest = self._differing([alone[at] for at in few], single)
        if changed:
            yield CheckFinding(
                "warning",
                f"{part_of(changed, len(few), 'rewards', 'change')} "
                f"by up to {largest:.3g} in a batch of one.",
                ("Score each response independently of the size of the batch.",),
                figures={"largest": largest},
            )

    def _differing(self, before: Sequence[float], after: Sequence[float]) -> tuple[int, float]:
        """How many rewards differ by more than rounding, and the largest difference."""
        differences = [abs(one - other) for one, other in zip(before, after, strict=True)]
        changed = sum(difference > self.max_rounding_difference for difference in differences)
        return changed, max(differences, default=0.0)

    def _memory(
        self, context: PreflightContext, reward: UserReward, answers: ReferenceAnswers
    ) -> Iterator[CheckFinding]:
        """Rewards that depend on what the function scored before.

        Wrong answers are answers of other rows, which the function has scored as correct ones. If
        no format earned a reward, correct answers in each format are scored in its place: the
        first response to a prompt may decide about all others.
        """
        forms = [*answer_formats(context.settings).values(), *answers.requested]
        turns = enumerate(answers.answers)
        wrong = [
            format_answer(forms[at % len(forms)], answer)
            if answers.threshold is None
            else format_answer(answers.answer_format, wrong_answer(answer, answers.answers))
            for at, answer in turns
        ]
        before = reward(answers.rows, wrong).total
        reward.close()
        fresh = reward(answers.rows, wrong).total
        changed, largest = self._differing(before, fresh)
        if changed:
            yield CheckFinding(
                "warning",
                f"{part_of(changed, len(wrong), 'rewards', 'change')} "
                f"by up to {largest:.3g} in a new "
                "process: it remembers earlier calls or uses hash().",
                (
                    "Remove global state; the key of a cache must contain prompt and answer, too.",
                    "Do not use hash() of a text or the order of a set: each process has its own.",
                ),
                figures={"largest": largest},
            )


def _judge(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """A judge's reply without a score that is paid like a good one."""
    if paid := paid_refusal(reward, rows):
        other = (
            f"as much as the reply {paid.high_reply!r} or more"
            if paid.default >= paid.high
            else f"more than the worst score ({paid.low:.3g})"
        )
        yield CheckFinding(
            "warning",
            f"A judge's reply without a score earns {paid.default:.3g}, {other}.",
            ("Return the lowest score for a reply that cannot be read, or ask the judge again.",),
            (f"reply without a score: {paid.reply!r}", f"the worst reply earns {paid.low:.3g}"),
            {"default": paid.default},
        )


def _order(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Rewards of responses without reference answers, in another order and in a new process."""
    free = score_free_responses(reward, rows)
    reversed_order, total = reversed_rewards(reward, free) if free else (0, 0)
    if reversed_order:
        yield CheckFinding(
            "warning",
            f"{part_of(reversed_order, total, 'rewards', 'change')} "
            "when the rows of the batch come in the "
            "opposite order: they depend on the other rows, or are random.",
            (
                "Read the columns of each response's own row, as in zip(completions, column); "
                "column[0] belongs to the first row of the batch.",
            ),
            figures={"share": reversed_order / total},
        )
        return
    if in_batches := [*_batches(reward, rows)]:
        yield from in_batches
        return
    if free and (edited := [*_edits(reward, free.rows, free.texts[WORDS_OF_ROW])]):
        yield from edited
        return
    changed, total = changed_rewards(reward, free) if free else (0, 0)
    if changed:
        yield CheckFinding(
            "warning",
            f"{part_of(changed, total, 'rewards', 'change')} "
            "in a new process in which other responses are "
            "scored first: it remembers earlier calls, or is random.",
            ("Remove global state; the key of a cache must contain the response, too.",),
            figures={"share": changed / total},
        )


def _removed_columns(context: PreflightContext, reward: UserReward) -> Iterator[CheckFinding]:
    """Columns that the function reads and that the config removes before it is called."""
    if context.run_config.get("removes_columns") is not True:
        return
    read = [
        name
        for name in dict.fromkeys((*reward.parameters, *reward.keywords))
        if any(name in row.columns and name != row.prompt_column for row in context.rows)
    ]
    if read and changes_without_columns(reward, context.rows):
        yield CheckFinding(
            "critical",
            "The config removes the columns that the reward function reads: "
            f"{', '.join(map(repr, read))}.",
            ("Set remove_unused_columns to false, which is TRL's default.",),
        )


def _batches(reward: UserReward, rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Rewards that depend on the other responses of the batch, whatever is right."""
    if found := changed_by_batch(reward, rows):
        yield CheckFinding(
            "warning",
            f"{part_of(found.changed, found.total, 'rewards', 'change')} "
            f"by up to {found.largest:.3g} if the "
            f"batch holds {found.batches}.",
            (
                "Score each response on its own scale: do not divide by the batch's largest reward "
                "or subtract its mean. The trainer compares the responses of a group itself.",
            ),
            figures={"largest": found.largest},
        )


def _edits(
    reward: UserReward, rows: Sequence[PromptRow], texts: Sequence[str]
) -> Iterator[CheckFinding]:
    """Arguments that the function changes in place."""
    edited = reward.edited_arguments(rows, texts)
    if edited:
        yield CheckFinding(
            "warning",
            f"The reward function changes its arguments in place: {', '.join(edited)}.",
            (
                "Work on a copy: the trainer passes the same objects to the other reward functions "
                "and to its logs.",
            ),
        )


def _batch_failure(error: DataError) -> CheckFinding:
    """The function accepts single responses and fails on a batch."""
    return CheckFinding(
        "critical",
        f"On a batch of correct answers, {error.what}.",
        (
            "Return one number per response. TRL gives a single number to the whole batch without "
            "an error.",
        ),
        (error.remedy,),
    )


def _reads_answers(context: PreflightContext) -> bool:
    """Whether the function scores correct answers in some format without an error."""
    try:
        answers = context.reference_answers
    except DataError:
        return False
    return answers is not None


def _call_failure(error: DataError, context: PreflightContext, reward: UserReward) -> CheckFinding:
    """The function fails on every response, because of what the trainer passes to it.

    Or only on those without the format of an answer, as those of an untrained model.
    """
    what = error.what.removeprefix(f"the reward function {reward.spec[:200]} ")
    which, advice = "response", f"Correct the function or the columns of the data: {error.remedy}."
    if _reads_answers(context):
        which, advice = "response that lacks its format", _SCORE_ALL
    elif context.reward_rows[0].messages and "'list'" in error.what:
        advice = (
            "The prompts are messages, so each completion is a list of messages: read the text "
            'with completion[0]["content"], or store prompts as text.'
        )
    return CheckFinding(
        "critical",
        f"The reward function fails on every {which}: it {what}.",
        (advice,),
        (error.what,),
    )


def _failures(context: PreflightContext, reward: UserReward) -> Iterator[CheckFinding]:
    row = context.reward_rows[0]
    unusual = _errors(reward, row, _UNUSUAL_RESPONSES)
    ordinary = _errors(reward, row, {_ORDINARY: _ORDINARY_RESPONSE})
    if offline := _offline(reward, row, {**unusual, **ordinary}):
        yield offline
        return
    if ordinary and len(unusual) == len(_UNUSUAL_RESPONSES):
        yield _call_failure(ordinary[_ORDINARY], context, reward)
        return
    counted = f"{len(unusual)} of {len(_UNUSUAL_RESPONSES)} unusual responses" if unusual else ""
    failures = {**unusual, **ordinary}
    if failures:
        responses = " and ".join(filter(None, (*ordinary, counted)))
        yield CheckFinding(
            "critical",
            f"The reward function fails on {responses}.",
            (_SCORE_ALL,),
            tuple(f"{kind}: {error.what}" for kind, error in failures.items()),
        )


def _offline(
    reward: UserReward, row: PromptRow, errors: Mapping[str, DataError]
) -> CheckFinding | None:
    """A note if the function fails only because its judge's server does not run yet.

    It then fails on none of these responses once the judge is replaced.
    """
    if not errors or not all(_UNREACHABLE.search(error.what) for error in errors.values()):
        return None
    responses = {**_UNUSUAL_RESPONSES, _ORDINARY: _ORDINARY_RESPONSE}
    texts = [responses[kind] for kind in errors]
    try:
        if reward.with_reply([row] * len(texts), texts, _JUDGES_REPLY) is None:
            return None
    except DataError:
        return None
    return CheckFinding(
        "info",
        "The server of the reward's judge cannot be reached; its replies were replaced.",
        ("Start the judge's server and repeat the command, to examine its scores.",),
        tuple(f"{kind}: {error.what}" for kind, error in errors.items())[:1],
    )


def _errors(
    reward: UserReward, row: PromptRow, responses: Mapping[str, str]
) -> dict[str, DataError]:
    """The errors of a function for one row, by the kind of the response."""
    errors = {}
    for kind, text in responses.items():
        try:
            reward([row], [text])
        except DataError as error:
            errors[kind] = error
    return errors
