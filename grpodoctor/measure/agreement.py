"""Whether the answers on which a group agrees are the right ones.

Most answers that a policy gives again and again are right (self-consistency). Groups that agree on
an answer and fail have a wrong reference, a damaged prompt, or a format that the verifier rejects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpodoctor.measure.final_answer import boxes, find_final
from grpodoctor.measure.groups import Groups
from grpodoctor.measure.subsample import name_hashes
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Floats, RolloutBatch

AGREED, AGREED_INCORRECT = "groups/agreed_rate", "groups/agreed_incorrect_rate"
MAJORITY = 0.75
"""Share of the responses of a group that state one answer in a group that agrees."""
_SMALLEST = 4
"""Responses of a group of which three quarters are a majority."""
_SEARCHED = 2_000
"""Last characters of a response that are searched: many braces take ten times as long as prose."""
_LONGEST, _MOST_WORDS = 100, 3
"""Characters and words up to which a marked text is an answer, and no heading."""
_DIGIT = re.compile(r"\d")
"""Answers without a digit are letters of choices, yes and no, labels, headings and comments."""
_CHOICES = 5
"""Choices of which policies agree on wrong ones by chance or by habit. Responses to different
prompts then state the same answer at least once in so many pairs."""


def stated_answers(texts: Sequence[str]) -> NDArray[np.uint64]:
    """A number per response, equal for equal answers in a box or after `#`; 0 without one.

    Only answers with a digit count. Two boxes that differ, a `#` above the last line, and a mark
    outside of answer tags are none: the verdict may read another part of the response.
    """
    answers = [_stated(text) for text in texts]
    return np.where(np.array([not each for each in answers], np.bool_), 0, name_hashes(answers))


def _stated(text: str) -> str:
    before, tag, tagged = text[-_SEARCHED:].rpartition("<answer>")
    searched = tagged.partition("</answer>")[0] if tag else before + tagged
    answer, marked = find_final(searched)
    if not marked or len(answer) > _LONGEST or len(answer.split()) > _MOST_WORDS:
        return ""
    # Programs end with a comment and the end of their block.
    if not _DIGIT.search(answer) or "\n" in answer or len(set(boxes(searched))) > 1:
        return ""
    plain = answer.replace(",", "").removeprefix("$").removesuffix("$").casefold()
    try:
        number = float(plain)
    except ValueError:
        return plain
    return f"{number:.12g}" if math.isfinite(number) else plain


def agreement_of(batch: RolloutBatch, groups: Groups) -> dict[str, Reading]:
    """The readings of a batch; none without texts, or if success is unknown."""
    correct_B = batch.correct_B
    if correct_B is None and set(np.unique(batch.rewards_B).tolist()) <= {0.0, 1.0}:
        correct_B = batch.rewards_B > 0
    if batch.texts is None or correct_B is None:
        return {}
    answers_B = stated_answers(batch.texts)
    return agreement_readings(groups, answers_B, np.asarray(correct_B, np.float64))


def agreement_readings(
    groups: Groups, answers_B: NDArray[np.uint64], correct_B: Floats
) -> dict[str, Reading]:
    """How many groups agree on an answer, and in how many of these it counts as wrong.

    Not applicable if the answers of the batch are a few choices.

    Args:
        groups: the assignment of responses to groups.
        answers_B: what `stated_answers` returns.
        correct_B: 1 if the response counts as correct, 0 if not.
    """
    agreed, incorrect, judged = 0, 0, 0
    for start, size in zip(groups.starts_G.tolist(), groups.sizes_G.tolist(), strict=True):
        rows = groups.order_B[start : start + size]
        if size < _SMALLEST:
            continue
        judged += 1
        answers, counts = np.unique(answers_B[rows], return_counts=True)
        most = int(counts.argmax())
        if not answers[most] or counts[most] < MAJORITY * size:
            continue
        agreed += 1
        incorrect += bool(correct_B[rows][answers_B[rows] == answers[most]].mean() < 1 / 2)
    if not judged or not answers_B.any():
        return {}
    if equal_between_groups(groups, answers_B) >= 1 / _CHOICES:
        reason = NotApplicable("the answers are a few choices, on which policies agree by chance")
        return {AGREED: reason, AGREED_INCORRECT: reason}
    return {
        AGREED: Rate(agreed, judged),
        AGREED_INCORRECT: Rate(incorrect, agreed)
        if agreed
        else NotApplicable("no group agrees on an answer"),
    }


def equal_between_groups(groups: Groups, answers_B: NDArray[np.uint64]) -> float:
    """Share of the pairs of stated answers in different groups that are equal; 0 without pairs."""
    stated_B = answers_B > 0
    groups_N = groups.index_B[stated_B]
    _, numbers_N = np.unique(answers_B[stated_B], return_inverse=True)
    of_both_N = groups_N * numbers_N.size + numbers_N
    equal = _pairs(numbers_N) - _pairs(of_both_N)
    pairs = numbers_N.size**2 - _pairs(groups_N)
    return equal / pairs if pairs else 0.0


def _pairs(numbers_N: NDArray[np.integer]) -> int:
    """Ordered pairs of equal numbers, those of a number with itself included."""
    return int(np.square(np.unique(numbers_N, return_counts=True)[1]).sum())
