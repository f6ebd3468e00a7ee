"""Readings of rewards against reference answers.

A reward that judges the answer pays for the reference answer and for no other. Wrong keys, scores
in a wrong order and inverted labels break this, and may leave the mean reward as it was.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpodoctor.measure.final_answer import find_final, has_box, same_answer
from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Floats, RolloutBatch

CORRELATION = "reward/answer_correlation"
DISAGREEMENT = "reward/answer_disagreement_rate"

_LONGEST_ANSWER = 100
"""Characters of a reference up to which it is an answer, and no solution or program."""
_TAIL = 400
"""Last characters of a response that are searched for its last number."""
_SEARCHED = 20_000
"""Last characters that are searched for the reference: a bound on hostile texts."""
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"-?\d(?:[\d,]*\d)?(?:\.\d+)?")
_OPERATORS = frozenset("0123456789+-*/^\N{MULTIPLICATION SIGN}\N{DIVISION SIGN}")
"""Characters before a number that make it a part of an expression."""
_MOST_VALUES = 2
"""Values of a reward that only tells right from wrong."""


def answer_matches(texts: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """Whether each response ends in its reference answer: 1, 0, or NaN where that is unknown.

    An answer in a box, or a word after `#`, is compared as it is. Otherwise the last number of the
    response is compared with a reference that is a number. A number at the end of an expression is
    no answer, and free text may state one in any words. A response that has the reference before
    another number is unknown too: a confidence or a remark may follow the answer.
    """
    return np.array(list(map(_matches, texts, references)), np.float64)


def _matches(text: str, reference: str) -> float:
    expected = _stated(reference)
    if not expected or len(expected) > _LONGEST_ANSWER:
        return np.nan
    answer, marked = find_final(text)
    if same_answer(answer, expected):
        return 1.0
    if has_box(text) or (marked and len(answer.split()) == 1):
        return 0.0 if _differ(answer, expected) else np.nan
    if _NUMBER.fullmatch(expected) is None:
        return np.nan
    return _ends_in_number(text, expected)


def _stated(reference: str) -> str:
    """The answer of a reference: in a box, after the `####` of GSM8K, or all of it.

    A single `#` may begin a comment of a program.
    """
    if has_box(reference):
        return find_final(reference).text
    return reference.rpartition("####")[2].strip()


def _differ(answer: str, expected: str) -> bool:
    """Whether two answers differ in any notation: both are numbers, or both are plain words.

    `1/2` and `0.5`, `90` and `$90$`, or `B` and `(B)` may be one answer to the reward.
    """
    if not answer:
        return True
    if all(map(_NUMBER.fullmatch, (answer, expected))):
        return True
    are_words = all(map(_WORD.fullmatch, (answer, expected)))
    return are_words and answer.casefold() != expected.casefold()


def _ends_in_number(text: str, expected: str) -> float:
    tail = text[-_TAIL:]
    last = deque(_NUMBER.finditer(tail), maxlen=1)
    if last and tail[: last[0].start()].rstrip()[-1:] in _OPERATORS:
        return np.nan
    if last and same_answer(last[0][0], expected):
        return 1.0
    return np.nan if _has_number(text[-_SEARCHED:], expected) else 0.0


def _has_number(text: str, expected: str) -> bool:
    whole = expected.partition(".")[0].replace(",", "")
    if whole not in text.replace(",", ""):
        return False  # the usual case, and much faster
    return any(same_answer(number, expected) for number in _NUMBER.findall(text))


def answers_of(batch: RolloutBatch) -> dict[str, Reading]:
    """The readings of a batch; none without texts or reference answers."""
    if not batch.texts or not any(batch.references):
        return {}
    matches_B = answer_matches(batch.texts, batch.references)
    return answer_readings(matches_B, batch.rewards_B, batch.group_ids_B)


@with_errstate(over="ignore", invalid="ignore")
def answer_readings(
    matches_B: Floats, rewards_B: Floats, groups_B: NDArray[np.generic]
) -> dict[str, Reading]:
    """How the rewards of a batch follow the reference answers.

    The correlation is that of the differences from the mean of the group. Over the whole batch,
    prompts of sources with other scales or offsets of the reward would mask or reverse it.

    Args:
        matches_B: what `answer_matches` returns.
        rewards_B: the rewards.
        groups_B: an id of the group of each response. If no group has two responses, the batch
            counts as one group.
    """
    known_B = np.isfinite(matches_B) & np.isfinite(rewards_B)
    matches, rewards = (np.asarray(each[known_B], np.float64) for each in (matches_B, rewards_B))
    if not matches.size:
        return {}
    _, index, sizes = np.unique(groups_B[known_B], return_inverse=True, return_counts=True)
    if sizes.max() < 2:
        index, sizes = np.zeros_like(index), np.array([matches.size])
    correlation = _correlation(*(_centred(each, index, sizes) for each in (matches, rewards)))
    values = np.unique(rewards)
    if np.unique(matches).size < 2 or values.size < 2:
        reason = NotApplicable("all rewards are equal, or all answers are right or wrong")
        return {CORRELATION: reason, DISAGREEMENT: reason}
    readings: dict[str, Reading] = {
        CORRELATION: NotApplicable("no group has both right and wrong answers, and two rewards")
        if correlation is None
        else Mean.of([correlation]),
        DISAGREEMENT: NotApplicable("the reward has more than two values"),
    }
    if values.size == _MOST_VALUES:
        readings[DISAGREEMENT] = Rate.of((rewards == values[1]) != (matches > 0))
    return readings


def _centred(
    values: NDArray[np.float64], index: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Differences from the mean of the group; exactly 0 in a group of equal values."""
    spread = np.zeros(sizes.size, np.bool_)
    first = np.zeros(sizes.size)
    first[index] = values
    np.logical_or.at(spread, index, values != first[index])
    means = np.bincount(index, weights=values) / sizes
    return np.where(spread[index], values - means[index], 0.0)


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    """Correlation of two centred series; None if one of them is 0 throughout."""
    scales = [float(np.abs(each).max()) for each in (one, other)]
    if not all(0 < scale < np.inf for scale in scales):
        return None
    one, other = one / scales[0], other / scales[1]  # so that no square overflows
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))
