"""How much the rewards of responses with the same final answer differ, and whether by length.

Responses to one prompt that state the same answer are right or wrong together. A reward that judges
the answer is the same for them; what differs is paid for the text around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpodoctor.measure.agreement import equal_between_groups, stated_answers
from grpodoctor.measure.batch import Floats, Integers, RolloutBatch
from grpodoctor.measure.groups import Groups, numbered_texts
from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import Mean, NotApplicable, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAME, OTHER = "groups/same_answer_variance", "groups/other_answer_variance"
BY_LENGTH = "groups/same_answer_length_correlation"
_ONE_ANSWER = 0.5
"""Share of equal answers among pairs to different prompts from which the mark is a heading or a
comment and no final answer, or there are two choices."""
_ALIKE = NotApplicable("responses to different prompts state the same answer")
_NO_PAIRS = NotApplicable("no group has both different responses with one answer and two answers")
_NO_SPREAD = NotApplicable("responses with one answer do not differ in reward, or not in length")


def same_answer_readings_of(batch: RolloutBatch, groups: Groups) -> dict[str, Reading]:
    """The readings of a batch; none without texts."""
    if batch.texts is None:
        return {}
    answers_B = stated_answers(batch.texts)
    texts_B = numbered_texts(batch, groups)
    return same_answer_readings(groups, answers_B, texts_B, batch.rewards_B, batch.lengths_B)


@with_errstate(over="ignore", invalid="ignore")
def same_answer_readings(
    groups: Groups,
    answers_B: NDArray[np.uint64],
    texts_B: NDArray[np.generic],
    rewards_B: Floats,
    lengths_B: Floats | Integers,
) -> dict[str, Reading]:
    """Reward variance between different responses of a group with one answer, and with two.

    Both are half the mean squared difference of two responses, over the groups that have pairs of
    both kinds. Identical responses are no pair. Not applicable if most prompts have one answer.

    Args:
        groups: the assignment of responses to groups.
        answers_B: what `stated_answers` returns; responses without an answer are left out.
        texts_B: a number per response, equal where two responses of a group are identical.
        rewards_B: the rewards, or any linear function of them within a group.
        lengths_B: tokens or characters.
    """
    stated_B = answers_B > 0
    if not stated_B.any():
        return {}
    if equal_between_groups(groups, answers_B) >= _ONE_ANSWER:
        return dict.fromkeys((SAME, OTHER, BY_LENGTH), _ALIKE)
    index_N = groups.index_B[stated_B].astype(np.int64)
    rewards_N = _centred(index_N, np.asarray(rewards_B, np.float64)[stated_B])
    lengths_N = _centred(index_N, np.asarray(lengths_B, np.float64)[stated_B])
    count_G, kinds = len(groups.sizes_G), (answers_B[stated_B], texts_B[stated_B])
    pairs = [_Pairs(index_N, kind, rewards_N, lengths_N, count_G) for kind in (None, *kinds)]
    of_group, of_answer, of_text = pairs
    same_G = of_answer.count_G - of_text.count_G
    other_G = of_group.count_G - of_answer.count_G
    judged_G = (same_G > 0) & (other_G > 0)
    if not judged_G.any():
        return dict.fromkeys((SAME, OTHER, BY_LENGTH), _NO_PAIRS)
    squares_G = np.maximum(of_answer.squares_G - of_text.squares_G, 0.0)[judged_G]
    others_G = np.maximum(of_group.squares_G - of_answer.squares_G, 0.0)[judged_G]
    lengths = float((of_answer.lengths_G - of_text.lengths_G)[judged_G].sum())
    products = float((of_answer.products_G - of_text.products_G)[judged_G].sum())
    scale = float(np.sqrt(squares_G.sum() * max(lengths, 0.0)))
    return {
        SAME: Mean.of(squares_G / same_G[judged_G] / 2),
        OTHER: Mean.of(others_G / other_G[judged_G] / 2),
        BY_LENGTH: Mean.of([np.clip(products / scale, -1.0, 1.0)]) if scale > 0 else _NO_SPREAD,
    }


def _centred(index_N: Integers, values_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values less the mean of their group, so that sums of squares lose no digits."""
    sizes_G = np.maximum(np.bincount(index_N), 1)
    return np.asarray(values_N - (np.bincount(index_N, weights=values_N) / sizes_G)[index_N])


class _Pairs:
    """The pairs of each group that are alike in something, and the sums over these pairs."""

    def __init__(
        self,
        index_N: Integers,
        kinds_N: NDArray[np.generic] | None,
        rewards_N: NDArray[np.float64],
        lengths_N: NDArray[np.float64],
        count: int,
    ) -> None:
        keys_N = np.zeros_like(index_N)
        if kinds_N is not None:
            keys_N = np.unique(kinds_N, return_inverse=True)[1].astype(np.int64)
        mixed_N = index_N * (int(keys_N.max()) + 1) + keys_N
        mixed_K, class_N = np.unique(mixed_N, return_inverse=True)
        self._owner_K = mixed_K // (int(keys_N.max()) + 1)
        self._class_N, self._count = class_N, count
        size_K = np.bincount(class_N).astype(np.float64)
        self.count_G = self._by_group(size_K * (size_K - 1) / 2)
        self.squares_G = self._products(rewards_N, rewards_N)
        self.lengths_G = self._products(lengths_N, lengths_N)
        self.products_G = self._products(rewards_N, lengths_N)

    def _products(
        self, left_N: NDArray[np.float64], right_N: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Products of the differences, summed over the pairs: n Σxy minus Σx Σy of each class."""
        size_K = np.bincount(self._class_N)
        sums = [np.bincount(self._class_N, weights=each) for each in (left_N, right_N)]
        products_K = np.bincount(self._class_N, weights=left_N * right_N)
        return self._by_group(size_K * products_K - sums[0] * sums[1])

    def _by_group(self, values_K: NDArray[np.float64]) -> NDArray[np.float64]:
        sums_G = np.bincount(self._owner_K, weights=values_K, minlength=self._count)
        return sums_G.astype(np.float64, copy=False)
