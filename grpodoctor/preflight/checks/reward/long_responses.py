"""Findings about long responses: reasoning that hides the answer, and texts that must be equal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.completions.harmless_changes import NEUTRAL
from grpodoctor.preflight.answers.constructed_answers import format_answer
from grpodoctor.preflight.answers.reference_answers import ReferenceAnswers
from grpodoctor.preflight.answers.requested.requested_formats import OF_THOUGHTS
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward

_MAX_ROWS, _MIN_ROWS = 16, 5
_STEPS = (
    "We look at each part of the task in turn and note what follows from it.",
    "None of these parts needs more than one step, so the order does not matter here.",
    "With that settled, the remaining part follows from the ones that we have seen.",
)
_LONG = "\n".join(_STEPS * 6)
"""About 250 words: a short solution of a school problem."""
_MOST_LOST = 0.5
"""Part of the reward that reasoning may cost where the prompts ask for it."""
_MIN_SHARE = 0.5
_MIN_WORDS = 10
"""Words of a text that two writers do not write alike."""
_ASKS_FOR_PROSE = re.compile(
    r"\b(?:summar|translat|explain|describ|paraphras|rephras|caption|"
    r"write (?:a|an|one|two|three)\b)",
    re.IGNORECASE,
)
_EDITED = 0.6
"""Similarity of two texts by their words from which one is an edit of the other."""
_ANSWER_TAG = re.compile(r"<(\w[\w-]*)>\s*\{answer\}\s*</\1>")
_SYNTAX = re.compile(r"[\\{}<>=;|`\[\]]")


def lost_behind_long_reasoning(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]
) -> Iterator[CheckFinding]:
    """Reasoning of usual length that costs the answer behind it, where a short one does not.

    Args:
        reward: the reward function.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded, and whose prompts ask for reasoning, or for a
            box, which models write behind it unasked.
    """
    chosen, form = rows[:_MAX_ROWS], answers.answer_format
    if len(chosen) < _MIN_ROWS or "<think>" in form:
        return
    right = [format_answer(form, answers.answers[at]) for at in chosen]
    inputs = [answers.rows[at] for at in chosen]
    try:
        short, long = (
            answers.lost_parts(chosen, reward(inputs, [f"{text}\n{each}" for each in right]).total)
            for text in (NEUTRAL, _LONG)
        )
    except DataError:  # REW103 reports it
        return
    losing = [
        after
        for before, after in zip(short, long, strict=True)
        if before <= _MOST_LOST / 2 and after > _MOST_LOST
    ]
    if len(losing) > _MIN_SHARE * len(chosen):
        yield CheckFinding(
            "warning",
            f"Correct answers behind {len(_LONG.split())} words of reasoning lose "
            f"{sum(losing) / len(losing):.0%} of their reward; behind one sentence they do not.",
            (
                "Score the whole response, or its end: a part at the beginning is read, or length "
                "costs too much.",
            ),
            (f"full reward: {right[0]!r:.120}",),
            {"lost": sum(losing) / len(losing)},
        )


def lost_outside_tags(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]
) -> Iterator[CheckFinding]:
    """Text before the tags that the prompts ask for, which is scored in place of their content.

    Args:
        reward: a reward function that measures the similarity to the reference.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded.
    """
    tagged = [
        each
        for each in answers.requested
        if (tag := _ANSWER_TAG.search(each)) and tag[1] not in OF_THOUGHTS
    ]
    chosen = rows[:_MAX_ROWS]
    if len(chosen) < _MIN_ROWS or not tagged:
        return
    # Prompts of tasks with tools ask for several tags; the answer is in the rewarded one.
    rewarded = _ANSWER_TAG.search(answers.answer_format)
    in_it = [each for each in tagged if rewarded and rewarded[0] in each]
    form = min(in_it or tagged, key=len)
    texts = [f"{NEUTRAL}\n{format_answer(form, answers.answers[at])}" for at in chosen]
    try:
        lost = answers.lost_parts(chosen, reward([answers.rows[at] for at in chosen], texts).total)
    except DataError:  # REW103 reports it
        return
    losing = [part for part in lost if part > _MOST_LOST]
    if len(losing) > _MIN_SHARE * len(chosen):
        part = sum(losing) / len(losing)
        yield CheckFinding(
            "warning",
            f"Correct answers in the tags that the prompts ask for lose {part:.0%} of their reward "
            "behind a line of text.",
            ("Score the content of the tags alone, not the first line or the whole response.",),
            (f"full reward: {answers.answer_format!r}", f"less: {texts[0]!r:.160}"),
            {"lost": part},
        )


def must_be_equal(
    reward: UserReward, answers: ReferenceAnswers, rows: Sequence[int]
) -> Iterator[CheckFinding]:
    """Texts that earn nothing without their last word, where prompts ask for free text.

    Args:
        reward: the reward function; it is none that measures similarity.
        answers: the data's answers.
        rows: rows whose correct answer is rewarded.
    """
    chosen = [
        at
        for at in rows
        if len(answers.answers[at].split()) >= _MIN_WORDS
        and not _SYNTAX.search(answers.answers[at])
        and _ASKS_FOR_PROSE.search("\n".join(answers.rows[at].texts()))
        and not _is_edited(answers.answers[at], answers.rows[at].user_texts())
    ][:_MAX_ROWS]
    if len(chosen) < max(_MIN_ROWS, _MIN_SHARE * min(len(rows), _MAX_ROWS)):
        return
    texts = [
        format_answer(answers.answer_format, answers.answers[at].rsplit(None, 1)[0])
        for at in chosen
    ]
    try:
        lost = answers.lost_parts(chosen, reward([answers.rows[at] for at in chosen], texts).total)
    except DataError:  # REW103 reports it
        return
    if sum(part >= 1 for part in lost) > _MIN_SHARE * len(chosen):
        yield CheckFinding(
            "warning",
            "Texts must be exactly the reference: without one word they earn nothing, and no other "
            "wording does.",
            ("Measure the similarity to the reference (ROUGE, chrF), or check its facts.",),
            (f"reference: {answers.answers[chosen[0]]!r:.160}",),
            {"share": sum(part >= 1 for part in lost) / len(chosen)},
        )


def _is_edited(answer: str, texts: Sequence[str]) -> bool:
    """Whether a reference is a line of the prompt with a few changes, which has no other wording.

    Corrected grammar is such a reference; a summary or a translation is none.
    """
    words = answer.split()
    lines = (line.split() for text in texts for line in text.splitlines())
    return any(SequenceMatcher(None, line, words).ratio() >= _EDITED for line in lines if line)
