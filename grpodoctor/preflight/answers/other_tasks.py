"""Rows of other tasks than the one that is examined.

Runs with several tasks have rows that the reward function leaves to other functions, by returning
None, and rows whose prompts ask for another format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.answer_variants import asked_formats
from grpodoctor.preflight.answers.constructed_answers import (
    FORMATS,
    format_answer,
    wrong_answer,
)
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.answers.requested.requested_formats import requested_formats
from grpodoctor.preflight.answers.requested.source_tags import mentions_none
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.trainer.rewards.user_reward import UserReward

_TRIED_ROWS, _MAX_ROWS = 48, 2000
_SENTENCE = "The answer is 12."
_MOST, _FEWEST = 0.9, 0.1
_MIN_MARK = 3
"""Signs around an answer that make a format."""


def rows_with_rewards(reward: UserReward, rows: tuple[PromptRow, ...]) -> tuple[PromptRow, ...]:
    """The rows that the function scores; all rows if it never returns None, or by the response."""
    if reward.form != "trl" or not rows or not mentions_none(reward.spec):
        return rows
    try:
        if all(_scored(reward, tuple(spread_rows(rows, _TRIED_ROWS)), _SENTENCE)):
            return rows
        tried = tuple(spread_rows(rows, _MAX_ROWS))
        sentences, empty = (_scored(reward, tried, text) for text in (_SENTENCE, ""))
    except DataError:  # REW103 reports it
        return rows
    own = tuple(row for row, scored in zip(tried, sentences, strict=True) if scored)
    return own if own and sentences == empty else rows


def _scored(reward: UserReward, rows: Sequence[PromptRow], text: str) -> list[bool]:
    return reward.scored(rows, [text] * len(rows))


def rows_of_one_format(
    reward: UserReward, answers: ReferenceAnswers, rows: tuple[PromptRow, ...]
) -> tuple[PromptRow, ...]:
    """The rows whose answers have one format, if the others ask for another and earn with it.

    All rows if there is one format, or if right answers earn nothing in the format that their
    prompts ask for.
    """
    missed = [at for at, is_missed in enumerate(answers.missed) if is_missed]
    is_known = [not is_missed for is_missed in answers.missed]
    total = len(answers.rows)
    if not _FEWEST * total <= len(missed) <= _MOST * total:
        return rows
    texts = ["\n".join(row.texts()) for row in answers.rows]
    known = [text for text, kept in zip(texts, is_known, strict=True) if kept]
    others = [texts[at] for at in missed]
    for mark, form in _forms(others):
        is_theirs = sum(mark in text for text in others) >= _MOST * len(others)
        is_ours = sum(mark in text for text in known) > _FEWEST * len(known)
        if is_theirs and not is_ours and _earns(reward, answers, missed, form):
            return tuple(row for row in rows if not any(mark in text for text in row.texts()))
    return rows


def _forms(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Formats that prompts ask for, each with the text that shows it."""
    for name, mark in asked_formats(texts).items():
        yield mark, FORMATS[name]
    for form in requested_formats(texts):
        before, _, after = form.partition("{answer}")
        marks = (before.rpartition("\n")[2].strip(), after.partition("\n")[0].strip())
        mark = max(marks, key=len)
        if len(mark) >= _MIN_MARK:
            yield mark, form


def _earns(reward: UserReward, answers: ReferenceAnswers, chosen: Sequence[int], form: str) -> bool:
    """Whether most right answers in a format earn more than wrong ones and than no answer."""
    own = [answers.answers[at] for at in chosen]
    rows = [answers.rows[at] for at in chosen]
    try:
        right, wrong = (
            reward(rows, [format_answer(form, text) for text in texts]).total
            for texts in (own, [wrong_answer(text, own) for text in own])
        )
    except DataError:
        return False
    empty = [answers.empty[at] for at in chosen]
    better = [r > max(w, e) for r, w, e in zip(right, wrong, empty, strict=True)]
    return sum(better) >= _MOST * len(better)
