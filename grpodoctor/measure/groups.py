"""Readings of prompt groups: whether their rewards differ, so that there is a gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from grpodoctor.support.arrays import np, with_errstate
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, Reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from grpodoctor.measure.batch import Flags, Floats, Integers, RolloutBatch

REWARD_RESOLUTION = 1e-6
"""Rewards of a group count as equal if they differ by at most this share of the largest one. It is
a few times the rounding of float32, which adding the same components in another order causes."""


class Groups(NamedTuple):
    """Assignment of B responses to G groups, in the order of the group ids."""

    index_B: Integers
    sizes_G: Integers
    order_B: Integers
    """Responses sorted by group."""
    starts_G: Integers
    """Start of each group in that order."""


def groups_of(group_ids_B: Integers) -> Groups:
    """The groups of responses."""
    _, index_B, sizes_G = np.unique(group_ids_B, return_inverse=True, return_counts=True)
    order_B = np.argsort(index_B, kind="stable")
    return Groups(index_B, sizes_G, order_B, np.cumsum(sizes_G) - sizes_G)


@with_errstate(over="ignore", invalid="ignore")
def has_spread(groups: Groups, values_B: Floats) -> tuple[Flags, Flags]:
    """Which groups have different values, and which have equal values within `REWARD_RESOLUTION`.

    A group with a non-finite value is neither.
    """
    sorted_B = np.asarray(values_B, dtype=np.float64)[groups.order_B]
    high_G = np.maximum.reduceat(sorted_B, groups.starts_G)
    low_G = np.minimum.reduceat(sorted_B, groups.starts_G)
    spread_G = high_G - low_G
    noise_G = REWARD_RESOLUTION * np.maximum(np.abs(high_G), np.abs(low_G))
    finite_G = np.isfinite(spread_G)
    return finite_G & (spread_G > noise_G), finite_G & (spread_G <= noise_G)


EXPECTED_DUPLICATES = "groups/expected_duplicate_rate"
UNCENTRED_RATE = "groups/uncentred_rate"
REPEATED_PROMPTS = "groups/repeated_prompt_rate"
PROMPT_HASH = "prompt_hash"
"""Column of a response table: the hash of the whole prompt as the model read it."""
_HASH_BYTES = 8


def group_readings(batch: RolloutBatch, groups: Groups) -> dict[str, Reading]:
    """`groups/*` and `length/group_gap` of a batch with responses."""
    readings = reward_groups(groups, batch.rewards_B, batch.components, batch.correct_B)
    texts_B, count = numbered_texts(batch, groups), len(batch.sequence_ids)
    readings["groups/duplicate_rate"] = Rate(count - int(texts_B.max()) - 1, count)
    if (prompts_B := prompt_hashes(batch)) is not None and batch.prompts_are_whole:
        repeated = repeated_prompt_rate(batch.group_ids_B, prompts_B)
        readings |= {} if repeated is None else {REPEATED_PROMPTS: repeated}
    readings |= equal_text_readings(groups, texts_B, batch.rewards_B)
    if (logprobs_B := response_logprobs(batch)) is not None:
        readings[EXPECTED_DUPLICATES] = expected_duplicates(groups, logprobs_B)
    if batch.correct_B is not None:
        readings["length/group_gap"] = length_gap(batch.lengths_B, groups, batch.correct_B)
    return readings


@with_errstate(over="ignore", invalid="ignore")
def reward_groups(
    groups: Groups,
    rewards_B: Floats,
    components: Mapping[str, Floats],
    correct_B: Flags | None,
) -> dict[str, Reading]:
    """`groups/*` readings that depend on rewards, and on correctness if it is known."""
    effective_G, equal_G = has_spread(groups, rewards_B)
    readings: dict[str, Reading] = {
        "groups/size": Mean.of(groups.sizes_G),
        "groups/effective_rate": Rate.of(effective_G),
        "groups/zero_variance_rate": Rate.of(equal_G),
        "groups/reward_std": Mean.of(_reward_std(rewards_B, groups, equal_G)),
    }
    if components:
        spreads = [has_spread(groups, values_B)[0] for values_B in components.values()]
        # At least two: a single varying component has a weight of zero, nothing cancels.
        readings["groups/cancelled_rate"] = Rate.of(equal_G & (np.sum(spreads, axis=0) >= 2))
    if correct_B is not None:
        correct_G = _correct_in(groups, correct_B)
        readings["groups/all_correct_rate"] = Rate.of(equal_G & (correct_G == groups.sizes_G))
        readings["groups/all_incorrect_rate"] = Rate.of(equal_G & (correct_G == 0))
    return readings


def prompt_hashes(batch: RolloutBatch) -> NDArray[np.uint64] | None:
    """A number per response that is the same for equal prompts; None if a prompt is not known.

    Token ids are what the model read, so they come before the text.
    """
    tokens = batch.prompt_tokens
    if tokens is not None:
        return hashes_by_group(
            batch.group_ids_B, lambda row: tokens[row].astype(np.int64).tobytes()
        )
    if not all(batch.prompts):
        return None
    return hashes_by_group(batch.group_ids_B, lambda row: batch.prompts[row].encode())


def hashes_by_group(groups_B: Integers, content_of: Callable[[int], bytes]) -> NDArray[np.uint64]:
    """The hash of the prompt of each group's first response, for every response of the group.

    The other responses have the same prompt, so it is not read again.

    Args:
        groups_B: a number per response, equal within a group.
        content_of: the prompt of a response, by its row.
    """
    from hashlib import blake2b  # loads OpenSSL, which a log without dumps does not need

    _, first_G, index_B = np.unique(groups_B, return_index=True, return_inverse=True)
    contents = (content_of(row) for row in first_G.tolist())
    hashes = [blake2b(content, digest_size=_HASH_BYTES).digest() for content in contents]
    hashes_G = np.frombuffer(b"".join(hashes), np.uint64)
    return np.asarray(hashes_G[index_B])


def repeated_prompt_rate(groups_B: Integers, prompts_B: NDArray[np.uint64]) -> Rate | None:
    """Groups with the prompt of an earlier group; None if the groups are not known.

    An id for each response, and not for each group, says nothing about the groups.
    """
    count, prompts = np.unique(groups_B).size, np.unique(prompts_B).size
    return Rate(max(0, count - prompts), count) if 2 * count <= prompts_B.size else None


UNCENTRED = 0.02
"""Mean of a group's advantages, as a share of its largest one, that bf16 rounding cannot reach: it
changes a value by at most 0.4 %."""


@with_errstate(over="ignore", invalid="ignore")
def uncentred_rate(
    groups: Groups, advantages_B: Floats, rewards_B: Floats, in_loss_B: Flags
) -> Reading:
    """Groups whose advantages do not sum to zero, of those with different rewards.

    Groups with equal rewards are left out: their advantages are rounding errors divided by a tiny
    number, all of the same sign. So are groups with a response outside the loss, whose advantage
    may be recorded as zero.
    """
    judged_G, _ = has_spread(groups, rewards_B)
    judged_G &= np.bincount(groups.index_B, weights=~in_loss_B) == 0
    if not judged_G.any():
        return NotApplicable("no group has different rewards and all responses in the loss")
    largest_G = np.maximum.reduceat(np.abs(advantages_B)[groups.order_B], groups.starts_G)
    mean_G = np.bincount(groups.index_B, weights=advantages_B) / groups.sizes_G
    return Rate.of((np.abs(mean_G) > UNCENTRED * largest_G)[judged_G])


def _correct_in(groups: Groups, correct_B: Flags) -> NDArray[np.int64]:
    """Correct responses per group."""
    return np.bincount(groups.index_B, weights=correct_B).astype(np.int64)


def _reward_std(rewards_B: Floats, groups: Groups, equal_G: Flags) -> NDArray[np.float64]:
    """Population standard deviation per group; exactly zero where the rewards are equal."""
    index_B = groups.index_B
    mean_G = np.bincount(index_B, weights=rewards_B) / groups.sizes_G
    squares_B = (rewards_B - mean_G[index_B]) ** 2
    std_G = np.sqrt(np.bincount(index_B, weights=squares_B) / groups.sizes_G)
    return np.where(equal_G, 0.0, std_G)


def numbered_texts(batch: RolloutBatch, groups: Groups) -> NDArray[np.int64]:
    """A number from 0 for each response, equal for equal tokens in one group."""
    rows = zip(groups.index_B.tolist(), batch.tokens_BT, batch.mask_BT, strict=True)
    numbers: dict[tuple[int, bytes], int] = {}
    keys = [(group, tokens[mask].tobytes()) for group, tokens, mask in rows]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


EQUAL_TEXTS, OTHER_TEXTS = "groups/equal_text_variance", "groups/other_text_variance"


@with_errstate(over="ignore", invalid="ignore")
def equal_text_readings(
    groups: Groups, texts_B: NDArray[np.generic], rewards_B: Floats
) -> dict[str, Reading]:
    """Reward variance of identical and of different responses to one prompt.

    Half the mean squared difference of two responses of a group, which is the variance of a
    response. Both cover the groups that have pairs of both kinds, with equal weights.

    Args:
        groups: the assignment of responses to groups.
        texts_B: a number per response, equal where two responses of a group are identical.
        rewards_B: the rewards, or any linear function of them within a group.
    """
    rewards_B = np.asarray(rewards_B, np.float64)
    mean_G = np.bincount(groups.index_B, weights=rewards_B) / groups.sizes_G
    centred_B = rewards_B - mean_G[groups.index_B]
    distinct, text_B = np.unique(texts_B, return_inverse=True)
    kinds, kind_B = np.unique(
        groups.index_B.astype(np.int64) * distinct.size + text_B, return_inverse=True
    )
    owner_K, group_count = kinds // distinct.size, len(groups.sizes_G)
    count_K, squares_K = _pairs(kind_B, centred_B)
    count_G, squares_G = _pairs(groups.index_B, centred_B)
    equal_G = np.bincount(owner_K, weights=count_K, minlength=group_count)
    equal_squares_G = np.bincount(owner_K, weights=squares_K, minlength=group_count)
    judged_G = (equal_G > 0) & (equal_G < count_G)
    if not judged_G.any():
        reason = NotApplicable("no group has both identical and different responses")
        return {EQUAL_TEXTS: reason, OTHER_TEXTS: reason}
    equal_G, equal_squares_G = equal_G[judged_G], equal_squares_G[judged_G]
    other_squares_G = np.maximum(squares_G[judged_G] - equal_squares_G, 0.0)
    return {
        EQUAL_TEXTS: Mean.of(equal_squares_G / equal_G / 2),
        OTHER_TEXTS: Mean.of(other_squares_G / (count_G[judged_G] - equal_G) / 2),
    }


def place_readings(batch: RolloutBatch, groups: Groups) -> dict[str, Reading]:
    """What the place of a response in its group says about its reward and its length."""
    return {
        "groups/reward_by_place": share_by_place(groups, batch.rewards_B),
        "groups/length_by_place": share_by_place(groups, batch.lengths_B),
    }


_FEWEST_GROUPS = 2
"""Groups that a comparison of places needs."""


@with_errstate(over="ignore", invalid="ignore")
def share_by_place(groups: Groups, values_B: Floats | Integers) -> Reading:
    """Share of the variance within groups that the place of a response in its group explains.

    The responses of a group are exchangeable. If each group is permuted at random, the sum of
    squares between G places is expected to be 1/G of the sum of squares within groups, whatever the
    values are. What exceeds this is stated as a share of what can exceed it, so its mean is 0.

    Args:
        groups: the assignment of responses to groups. Responses of a group are in the order in
            which they were sampled or scored.
        values_B: rewards or lengths.
    """
    size = int(np.bincount(groups.sizes_G).argmax())
    starts = groups.starts_G[groups.sizes_G == size]
    sorted_B = np.asarray(values_B, np.float64)[groups.order_B]
    values_GS = sorted_B[starts[:, None] + np.arange(size)]
    values_GS = values_GS[values_GS.max(axis=1) > values_GS.min(axis=1)]
    count = len(values_GS)
    if count < _FEWEST_GROUPS:
        return NotApplicable("fewer than two groups of equal size have different values")
    centred_GS = values_GS - values_GS.mean(axis=1, keepdims=True)
    centred_GS /= np.abs(centred_GS).max()  # so that no square overflows
    explained = count * np.square(centred_GS.mean(axis=0)).sum() / np.square(centred_GS).sum()
    return Mean.of([(count * explained - 1) / (count - 1)])


def _pairs(
    index_B: Integers, values_B: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pairs of each kind, and the sum of their squared differences: n times Σx² minus (Σx)²."""
    size = np.bincount(index_B).astype(np.float64)
    sums = np.bincount(index_B, weights=values_B)
    squares = np.bincount(index_B, weights=values_B * values_B)
    return size * (size - 1) / 2, np.maximum(size * squares - sums * sums, 0.0)


def response_logprobs(batch: RolloutBatch) -> NDArray[np.float64] | None:
    """Log-probability of each whole response, under the sampler or the learner, shape (B,).

    The larger of the two: an estimate of duplicates should not be too low where one of them has
    another temperature. None if neither is known for every token.
    """
    known = (batch.sampler_logprobs_BT, batch.learner_logprobs_BT)
    owner_N, count = np.nonzero(batch.mask_BT)[0], len(batch.sequence_ids)
    totals = [
        np.bincount(owner_N, weights=each[batch.mask_BT], minlength=count)
        for each in known
        if each is not None
    ]
    if not totals:
        return None
    logprobs_B: NDArray[np.float64] = np.minimum(np.fmax.reduce(totals), 0.0)
    return logprobs_B if np.isfinite(logprobs_B).all() else None


_RARE = 1e-6
"""Probability below which the first term of the series is exact to rounding."""


@with_errstate(divide="ignore", invalid="ignore")
def expected_duplicates(groups: Groups, logprobs_B: NDArray[np.float64]) -> Mean:
    """Share of responses that repeat an earlier one of their group, if draws are independent.

    Of `r` earlier draws, each equals a response of probability `q` with probability `q`, so that it
    is new with probability `(1 - q)^r`. The mean over all orders of the group's `n` responses, so
    that the order in which they are recorded does not matter, is `1 - (1 - (1 - q)^n) / (n q)`.
    """
    probability_B, size_B = np.exp(logprobs_B), groups.sizes_G[groups.index_B]
    new_B = -np.expm1(size_B * np.log1p(-probability_B)) / (size_B * probability_B)
    rare_B = (size_B - 1) / 2 * probability_B
    return Mean.of(np.where(probability_B < _RARE, rare_B, 1 - new_B))


@with_errstate(over="ignore", invalid="ignore")
def length_gap(lengths_B: Floats | Integers, groups: Groups, correct_B: Flags) -> Reading:
    """Mean length of incorrect minus correct responses, over groups that have both."""
    correct_G = _correct_in(groups, correct_B)
    mixed_G = (correct_G > 0) & (correct_G < groups.sizes_G)
    if not mixed_G.any():
        return NotApplicable("no group has both correct and incorrect responses")
    total_G = np.bincount(groups.index_B, weights=lengths_B)
    correct_total_G = np.bincount(groups.index_B, weights=np.where(correct_B, lengths_B, 0))
    incorrect_G = groups.sizes_G - correct_G
    wrong = (total_G - correct_total_G)[mixed_G] / incorrect_G[mixed_G]
    return Mean.of(wrong - correct_total_G[mixed_G] / correct_G[mixed_G])
