"""Rewards of the data's own answers, computed once for all checks."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.constructed_answers import (
    FORMATS,
    LAYOUTS,
    UNRELATED,
    answer_formats,
    are_programs,
    format_answer,
    with_reasoning,
    wrong_answer,
)
from grpodoctor.preflight.answers.kinds.program_tests import passing_programs
from grpodoctor.preflight.answers.kinds.tool_calls import json_content
from grpodoctor.preflight.answers.multiple_choice import letter_of_number
from grpodoctor.preflight.answers.requested.requested_formats import (
    OF_THOUGHTS,
    WRAPPED,
    requested_formats,
)
from grpodoctor.preflight.answers.requested.source_tags import fences_read
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import SkippedCheck
from grpodoctor.trainer.rewards.user_reward import UserReward

REQUIRES_REWARD = SkippedCheck("no reward function was given", "add --reward FILE.py:function")
REQUIRES_ANSWERS = SkippedCheck(
    "the prompts have no answers", "add a column answer, solution or ground_truth to --prompts"
)
NO_ANSWER_REWARDED = SkippedCheck(
    "no correct answer earns a reward, see REW101", "give the answer format with --gold-format"
)
_MIN_PARTS, _MIN_PART_SHARE = 3, 0.1
"""Different parts of the reward that make a reward graded. Fixed partial credit has one or two."""
_LARGEST = 1e100
_MIN_TEXT_WORDS = 4
"""Words of an answer that is a text and can be halved."""
REQUESTED = "requested by the prompts"
"""Beginning of the names of formats that are read from the prompts."""
WITHIN_TAGS = ", within tags"
"""End of the names of formats that earn a reward only within a layout of tags."""
WITHIN_FENCE = " in a code fence"
"""End of the names of formats that are fences of a language in the function's source."""
AROUND_EACH = ", around each object"
"""End of the names of formats that stand around each object of a list, such as calls of tools."""
OWN_SOLUTIONS = "the data's own solutions"
"""Name of the format in which an answer is written as the data has it."""
_TRIED_ROWS = 8
"""Rows on which a format from the prompts must earn something before it is tried on all."""
_TIMED_ROWS, _SLOW_SECONDS, _SLOW_ROWS = 4, 0.02, 16
"""Rows on which the function is timed, seconds per response that are many, and rows to score then:
a hundred responses to each row would take minutes."""
_PROGRAM_FORMATS = frozenset({"plain", "code", "yours"})
"""Formats in which programs are written."""
_ANSWER_TAG = re.compile(r"<(\w[\w-]*)>\s*\{answer\}\s*</\1>")
_MAX_TAGGED = 6
"""Layouts of tags that are compared with the bare answer."""
_MAX_ROWS = 64
"""Rows to score: enough to find a parser that misses a tenth of the answers."""


@dataclass(frozen=True, slots=True)
class ReferenceAnswers:
    """Rows with an answer, in the format in which most correct answers earn a reward."""

    rows: tuple[PromptRow, ...]
    answers: tuple[str, ...]
    """The answers before formatting."""
    format_name: str
    answer_format: str
    rewards: tuple[float, ...]
    """Rewards of the correct answers."""
    wrong: tuple[float, ...]
    """Rewards of wrong answers; minus infinity where the function fails on them."""
    empty: tuple[float, ...]
    """Rewards of an empty completion; minus infinity where the function fails on it."""
    unrelated: tuple[float, ...] = ()
    """Rewards of a sentence about something else, in the format; empty if it was not tried."""
    halves: tuple[float, ...] = ()
    """Rewards of the first half of each answer, in the format; empty if it was not tried."""
    by_format: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Rewards of the correct answers in every format that was tried on all rows, by its name."""
    requested: tuple[str, ...] = ()
    """Formats read from the prompts."""

    @property
    def rewarded(self) -> tuple[bool, ...]:
        """Whether each correct answer earns more than an empty completion."""
        pairs = zip(self.rewards, self.empty, strict=True)
        return tuple(right > empty for right, empty in pairs)

    @property
    def missed(self) -> tuple[bool, ...]:
        """Whether the function does not recognize each correct answer.

        It earns no more than an empty completion. If the function separates most correct answers
        from wrong ones, a correct answer must also earn more than a wrong one; otherwise only the
        format is rewarded.
        """
        separated = [right > wrong for right, wrong in zip(self.rewards, self.wrong, strict=True)]
        separates_most = sum(separated) > len(separated) / 2
        return tuple(
            not (rewarded and (is_separated or not separates_most))
            for rewarded, is_separated in zip(self.rewarded, separated, strict=True)
        )

    def lost_parts(self, indices: Sequence[int], rewards: Sequence[float]) -> list[float]:
        """The parts of correct answers' rewards that other responses to the same rows do not earn.

        A reward counts from that of an empty completion, or from 0 if that is negative.

        Args:
            indices: rows.
            rewards: rewards of the other responses, one for each of these rows.
        """
        lost = []
        for index, reward in zip(indices, rewards, strict=True):
            right, least = self.rewards[index], max(self.empty[index], 0.0)
            if right > least:
                lost.append((right - reward) / (right - least))
        return lost

    @property
    def is_graded(self) -> bool:
        """Whether the function measures the similarity to the reference, as for translations.

        The answer of another row then earns a part of the reward, and the part differs from row to
        row; a sentence about something else earns less. Or half of a text earns a part.
        """
        if not self.unrelated:
            return False
        if self.halves and sum(self._are_parts(self.halves)) > len(self.halves) / 2:
            return True
        rows = zip(self.rewards, self.wrong, self.empty, self.unrelated, strict=True)
        parts = {
            round((wrong - other) / (right - other), 6)
            for right, wrong, empty, unrelated in rows
            if max(other := max(empty, unrelated), -_LARGEST) < wrong < right
        }
        return len(parts) >= max(_MIN_PARTS, _MIN_PART_SHARE * len(self.rewards))

    def _are_parts(self, rewards: Sequence[float]) -> list[bool]:
        """Whether each response earns more than an unrelated one and less than the right one."""
        rows = zip(rewards, self.rewards, self.empty, self.unrelated, strict=True)
        return [max(empty, unrelated) < reward < right for reward, right, empty, unrelated in rows]

    @property
    def threshold(self) -> float | None:
        """Reward from which a response counts as correct; None if no correct answer is rewarded.

        It is half-way between the rewards of right and wrong answers, so that a bonus for format or
        length does not decide.
        """
        right = [
            reward for reward, missed in zip(self.rewards, self.missed, strict=True) if not missed
        ]
        if not right:
            return None
        others = [max(wrong, empty) for wrong, empty in zip(self.wrong, self.empty, strict=True)]
        high, low = statistics.median(right), statistics.median(others)
        return (high + low) / 2 if -math.inf < low < high else high


def score_reference_answers(
    reward: UserReward, rows: Sequence[PromptRow], settings: RunSettings
) -> ReferenceAnswers | None:
    """Score the data's answers in every format and keep the best; None without answers.

    An answer that is a whole solution is tried as it is, and reduced to its final answer. Tests of
    a program's input and output are tried as programs that pass them. Unless
    the user gives a format, those that the prompts ask for are tried after the usual ones. Numbers
    of options that the prompts letter are tried as letters if no number earns anything.

    Raises:
        DataError: if the reward function fails.
    """
    scored = _score_answers(reward, rows, settings)
    if scored is None or not all(scored.missed):
        return scored
    numbered = [row for row in rows if letter_of_number(row)]
    if len(numbered) <= len(rows) / 2:
        return scored
    lettered = [replace(row, answer=letter_of_number(row)) for row in numbered]
    other = _score_answers(reward, lettered, settings)
    if other is None or all(other.missed):
        return scored
    own = {id(one): row for one, row in zip(lettered, numbered, strict=True)}
    return replace(other, rows=tuple(own[id(row)] for row in other.rows))


def _score_answers(
    reward: UserReward, rows: Sequence[PromptRow], settings: RunSettings
) -> ReferenceAnswers | None:
    """Score answers as they are written in the rows; see `score_reference_answers`."""
    answered = [row for row in rows if row.answer is not None and row.answer.strip()]
    if not answered:
        return None
    if len(answered) > _MAX_ROWS:
        answered = random.Random(settings.seed).sample(answered, _MAX_ROWS)  # noqa: S311 - a choice of rows
    answered = _fewer_if_slow(reward, answered)
    solutions = [row.answer or "" for row in answered]
    finals = passing_programs(solutions) or [final_answer(each) for each in solutions]
    candidates = [
        (name, form, finals)
        for name, form in answer_formats(settings).items()
        if name in _PROGRAM_FORMATS or not are_programs(finals)
    ]
    if finals != [solution.strip() for solution in solutions]:
        candidates.append((OWN_SOLUTIONS, "{answer}", solutions))
    scored = _score_all(reward, answered, candidates)
    empty = _rewards_or_minus_infinity(reward, answered, [""] * len(answered))
    requested = () if settings.gold_format else _requested(answered)
    tried = [(f"{REQUESTED} ({at})", form, finals) for at, form in enumerate(requested, 1)]
    scored += _score_better(reward, answered, tried, scored, empty)
    if not any(_count_above(rewards, empty) for *_, rewards in scored):
        each = [(f"{name}{AROUND_EACH}", form, [around_each(form, text) for text in finals])
                for name, form, _ in tried]  # fmt: skip
        repeated = [candidate for candidate in each if all(candidate[2])]
        scored += _score_better(reward, answered, repeated, scored, empty)
    if not any(_count_above(rewards, empty) for *_, rewards in scored):
        longer = [(f"{name}, after reasoning", with_reasoning(form), each)
                  for name, form, each in (*candidates, *tried)]  # fmt: skip
        scored += _score_better(reward, answered, longer, scored, empty)
    if not any(_count_above(rewards, empty) for *_, rewards in scored):
        within = [(f"{name}{WITHIN_TAGS}", layout.replace("{answer}", form), each)
                  for name, form, each in (*candidates, *tried) for layout in LAYOUTS]  # fmt: skip
        scored += _score_better(reward, answered, within, scored, empty)
    if not any(_count_above(rewards, empty) for *_, rewards in scored):
        languages = () if settings.gold_format else fences_read(reward.spec)
        fenced = [(f"{name}{WITHIN_FENCE}", fence(name), finals) for name in languages]
        scored += _score_better(reward, answered, fenced, scored, empty)
    if all(each[0] == -math.inf for *_, each in scored):
        _rewards(reward, answered, finals)  # raises the error of the function
    best = max(scored, key=lambda entry: _worth(entry[3], empty))
    name, form, answers, rewards = _as_asked(reward, answered, best, tried, empty) or best
    wrong = _rewards_of_wrong(reward, answered, form, answers, rewards)
    unrelated = _format_all(form, [UNRELATED] * len(answers))
    return ReferenceAnswers(
        rows=tuple(answered),
        answers=tuple(answers),
        format_name=name,
        answer_format=form,
        rewards=rewards,
        wrong=wrong,
        empty=empty,
        unrelated=_rewards_or_minus_infinity(reward, answered, unrelated),
        halves=_rewards_of_halves(reward, answered, form, answers),
        by_format={entry[0]: entry[3] for entry in scored},
        requested=requested,
    )


def around_each(form: str, answer: str) -> str:
    """An answer with a format's tags between its objects; empty if it is no list of objects."""
    before, _, after = form.partition("{answer}")
    objects = json_content(answer)
    are_objects = isinstance(objects, list) and all(isinstance(each, dict) for each in objects)
    if not are_objects or not objects or not before.lstrip().startswith("<") or not after:
        return ""
    return f"{after}\n{before}".join(map(json.dumps, objects))


def fence(language: str) -> str:
    """A code fence with the answer."""
    return f"```{language}\n{{answer}}\n```"


def _fewer_if_slow(reward: UserReward, rows: list[PromptRow]) -> list[PromptRow]:
    """Fewer rows if one response takes long, such as one that starts a program."""
    started = time.monotonic()
    few = rows[:_TIMED_ROWS]
    try:
        reward(few, [row.answer or "" for row in few])
    except DataError:  # the function may fail on answers without its format
        if reward.has_timed_out:
            raise
    is_slow = time.monotonic() - started > _SLOW_SECONDS * len(few)
    return rows[:_SLOW_ROWS] if is_slow else rows


def _rewards_of_wrong(
    reward: UserReward,
    rows: Sequence[PromptRow],
    form: str,
    answers: Sequence[str],
    right: Sequence[float],
) -> tuple[float, ...]:
    """Rewards of wrong answers; where one earns as much as the right one, of a second one.

    Two rows may have the same answer in other words, such as a list in another order.
    """
    first, second = (
        _rewards_or_minus_infinity(
            reward, rows, _format_all(form, [wrong_answer(answer, others) for answer in answers])
        )
        for others in (answers, answers[::-1])
    )
    return tuple(
        min(one, other) if one >= most else one
        for one, other, most in zip(first, second, right, strict=True)
    )


def _rewards_of_halves(
    reward: UserReward, rows: Sequence[PromptRow], form: str, answers: Sequence[str]
) -> tuple[float, ...]:
    """Rewards of the first half of each answer; empty if most answers are no texts."""
    words = [answer.split() for answer in answers]
    if sum(len(each) >= _MIN_TEXT_WORDS for each in words) <= len(words) / 2:
        return ()
    halves = [" ".join(each[: len(each) // 2]) for each in words]
    return _rewards_or_minus_infinity(reward, rows, _format_all(form, halves))


_Candidate = tuple[str, str, Sequence[str]]
"""A name, a format, and the answers to write in it."""
_Scored = tuple[str, str, Sequence[str], tuple[float, ...]]
"""A candidate with its rewards."""


def _score_all(
    reward: UserReward, rows: Sequence[PromptRow], candidates: Sequence[_Candidate]
) -> list[_Scored]:
    scored = []
    for name, form, answers in candidates:
        try:
            rewards = _rewards(reward, rows, _format_all(form, answers))
        except DataError:  # a function may fail on any other format than its own
            if reward.has_timed_out:
                raise
            rewards = (-math.inf,) * len(rows)
        scored.append((name, form, answers, rewards))
    return scored


def _score_better(
    reward: UserReward,
    rows: Sequence[PromptRow],
    candidates: Sequence[_Candidate],
    scored: Sequence[_Scored],
    empty: Sequence[float],
) -> list[_Scored]:
    """The rewards of the candidates that earn more on the first rows than those scored before."""
    few, nothing = rows[:_TRIED_ROWS], empty[:_TRIED_ROWS]
    least = max(_worth(rewards[:_TRIED_ROWS], nothing) for *_, rewards in scored)
    better = []
    for name, form, answers in candidates:
        texts = _format_all(form, answers[:_TRIED_ROWS])
        rewards = _rewards_or_minus_infinity(reward, few, texts)
        if _worth(rewards, nothing) > least:
            better.append((name, form, answers))
    return _score_all(reward, rows, better)


def _as_asked(
    reward: UserReward,
    rows: Sequence[PromptRow],
    best: _Scored,
    tried: Sequence[_Candidate],
    empty: Sequence[float],
) -> _Scored | None:
    """The tags that the prompts ask for, where the answer alone earns no more; None if it does.

    A model writes what it is asked for. A parser that also accepts the bare answer, such as
    `text.split("<answer>")[-1]`, reads the whole response only where the tags are missing.
    """
    if best[1] != "{answer}" or best[0] == OWN_SOLUTIONS:
        return None
    tagged = [
        each for each in tried if (tag := _ANSWER_TAG.search(each[1])) and tag[1] not in OF_THOUGHTS
    ]
    scored = _score_all(reward, rows, tagged[:_MAX_TAGGED])
    equal = [each for each in scored if _worth(each[3], empty) >= _worth(best[3], empty)]
    return max(equal, key=lambda entry: _worth(entry[3], empty)) if equal else None


def _worth(rewards: Sequence[float], empty: Sequence[float]) -> tuple[int, float]:
    """How many correct answers a format makes worth more than nothing, and their mean reward."""
    return _count_above(rewards, empty), statistics.fmean(rewards)


def _requested(rows: Sequence[PromptRow]) -> tuple[str, ...]:
    """Formats that the prompts ask for and that are not tried anyway."""
    forms = requested_formats(["\n".join(row.texts()) for row in rows])
    return tuple(form for form in (*forms, *WRAPPED) if form not in FORMATS.values())


def _format_all(form: str, answers: Sequence[str]) -> list[str]:
    return [format_answer(form, answer) for answer in answers]


def _count_above(rewards: Sequence[float], empty: Sequence[float]) -> int:
    return sum(right > nothing for right, nothing in zip(rewards, empty, strict=True))


def _rewards_or_minus_infinity(
    reward: UserReward, rows: Sequence[PromptRow], texts: Sequence[str]
) -> tuple[float, ...]:
    """Rewards of completions; minus infinity for all if the function fails on them."""
    try:
        return _rewards(reward, rows, texts)
    except DataError:
        return (-math.inf,) * len(rows)


def _rewards(
    reward: UserReward, rows: Sequence[PromptRow], texts: Sequence[str]
) -> tuple[float, ...]:
    return tuple(reward(rows, texts).total)
