"""Readings of rewards against reference answers.

A reward that judges the answer pays for the reference answer and for no other. Wrong keys, scores
in a wrong order and inverted labels break this, and may leave the mean reward as it was.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpodoctor.measure.batch import Floats, RolloutBatch
from grpodoctor.measure.final_answer import find_final, has_box, same_answer
from grpodoctor.support.arrays import np
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

CORRELATION = "reward/answer_correlation"
DISAGREEMENT = "reward/answer_disagreement_rate"

_LONGEST_ANSWER = 100
"""Characters of a reference up to which it is an answer, and no solution or program."""
_TAIL = 400
"""Last characters of a response that are searched for a number."""
_NUMBER = re.compile(r"-?\d(?:[\d,]*\d)?(?:\.\d+)?")
_OPERATORS = frozenset("0123456789+-*/^\N{MULTIPLICATION SIGN}\N{DIVISION SIGN}")
"""Characters before a number that make it a part of an expression."""
_MOST_VALUES = 2
"""Values of a reward that only tells right from wrong."""


def answer_matches(texts: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """Whether each response ends in its reference answer: 1, 0, or NaN where that is unknown.

    An answer in a box, or a word after `#`, is compared as it is. Otherwise the last number of the
    response is compared with a reference that is a number. A number at the end of an expression is
    no answer, and free text may state one in any words.
    """
    return np.array(list(map(_matches, texts, references)), np.float64)


def _matches(text: str, reference: str) -> float:
    expected = find_final(reference.strip()).text
    if not expected or len(expected) > _LONGEST_ANSWER:
        return np.nan
    answer, marked = find_final(text)
    if same_answer(answer, expected):
        return 1.0
    if has_box(text) or (marked and len(answer.split()) == 1):
        return 0.0
    if _NUMBER.fullmatch(expected) is None:
        return np.nan
    tail = text[-_TAIL:]
    last = deque(_NUMBER.finditer(tail), maxlen=1)
    if not last:
        return 0.0
    if tail[: last[0].start()].rstrip()[-1:] in _OPERATORS:
        return np.nan
    return float(same_answer(last[0][0], expected))


def answers_of(batch: RolloutBatch) -> dict[str, Reading]:
    """The readings of a batch; none without texts or reference answers."""
    if not batch.texts or not any(batch.references):
        return {}
    return answer_readings(answer_matches(batch.texts, batch.references), batch.rewards_B)


def answer_readings(matches_B: Floats, rewards_B: Floats) -> dict[str, Reading]:
    """How the rewards of a batch follow the reference answers.

    Args:
        matches_B: what `answer_matches` returns.
        rewards_B: the rewards.
    """
    known_B = np.isfinite(matches_B) & np.isfinite(rewards_B)
    matches, rewards = matches_B[known_B], np.asarray(rewards_B[known_B], np.float64)
    if not matches.size:
        return {}
    values = np.unique(rewards)
    if np.unique(matches).size < 2 or values.size < 2:
        reason = NotApplicable("all rewards are equal, or all answers are right or wrong")
        return {CORRELATION: reason, DISAGREEMENT: reason}
    readings: dict[str, Reading] = {
        CORRELATION: Mean.of([float(np.corrcoef(matches, rewards)[0, 1])]),
        DISAGREEMENT: NotApplicable("the reward has more than two values"),
    }
    if values.size == _MOST_VALUES:
        readings[DISAGREEMENT] = Rate.of((rewards == values[1]) != (matches > 0))
    return readings
