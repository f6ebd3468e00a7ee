from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from grpodoctor.measure.answers import answer_matches, answer_readings, answers_of
from grpodoctor.measure.groups import equal_text_readings, groups_of, share_by_place
from grpodoctor.vocabulary.values import Mean, NotApplicable, Rate, scalar

EQUAL, OTHER = "groups/equal_text_variance", "groups/other_text_variance"
CORRELATION, DISAGREEMENT = "reward/answer_correlation", "reward/answer_disagreement_rate"


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        (r"so \boxed{18}", "18", 1.0),
        (r"so \boxed{18.0}", "steps #### 18", 1.0),
        (r"so \boxed{17}", "18", 0.0),
        ("17 + 1 #18", "18", 1.0),
        ("The answer is 1,800.", "1800", 1.0),
        ("The answer is 16 or 19", "18", 0.0),
        ("<answer>18</answer> <confidence>90</confidence>", "18", np.nan),
        ("18 apples." + " Because 5 is less than 9." * 40, "18", np.nan),
        (r"so \boxed{\frac{1}{2}}", "0.5", np.nan),
        (r"so \boxed{90^\circ}", "90", np.nan),
        (r"so \boxed{x = 5}", "5", np.nan),
        (r"so \boxed{\text{(B)}}", "B", np.nan),
        (r"so \boxed{b}", "B", np.nan),
        (r"so \boxed{C}", "B", 0.0),
        (r"so \boxed{}", "B", 0.0),
        ("print(total)  # done", "print(sum(x))  # sum", np.nan),
        ("print(total)  # done", "print(sum(x))", np.nan),
        ("no number", "18", 0.0),
        ("use <answer> 50 - 48 </answer>", "2", np.nan),
        ("so (50-48)", "2", np.nan),
        ("## Result\nIt is 18 apples.", "18", 1.0),
        ("## Result\nIt is 17 apples.", "18", 0.0),
        ("Paris", "Paris", 1.0),
        ("It is Paris.", "Paris", np.nan),
        ("18", "", np.nan),
        ("18", "word " * 40, np.nan),
    ],
)
def test_final_answers_and_references(text, reference, expected):
    assert answer_matches([text], [reference])[0] == pytest.approx(expected, nan_ok=True)


def test_wrong_keys_and_inverted_labels_show_in_the_correlation():
    matches, group = np.array([1.0, 1.0, 0.0, 0.0]), np.zeros(4)
    right = answer_readings(matches, matches, group)
    assert (scalar(right[CORRELATION]), right[DISAGREEMENT]) == (pytest.approx(1), Rate(0, 4))
    inverted = answer_readings(matches, 1 - matches, group)
    assert (scalar(inverted[CORRELATION]), inverted[DISAGREEMENT]) == (
        pytest.approx(-1), Rate(4, 4),
    )  # fmt: skip
    half = answer_readings(matches, np.array([5.0, -5.0, 5.0, -5.0]), group)
    assert (scalar(half[CORRELATION]), half[DISAGREEMENT]) == (pytest.approx(0), Rate(2, 4))


def test_unknown_answers_and_rewards_without_spread_say_nothing():
    matches, group = np.array([1.0, np.nan, 0.0, 0.0]), np.zeros(4)
    shaped = answer_readings(matches, np.array([1.2, 0.0, 0.1, 0.3]), group)
    assert isinstance(shaped[DISAGREEMENT], NotApplicable)
    assert shaped[CORRELATION].count == 1
    assert isinstance(answer_readings(matches, np.ones(4), group)[CORRELATION], NotApplicable)
    assert answer_readings(np.full(4, np.nan), np.ones(4), group) == {}


def test_sources_with_other_reward_scales_do_not_hide_the_answers():
    """A hard source with a high offset: over the batch, right answers have the lower reward."""
    matches = np.array([1, 1, 1, 0, 1, 0, 0, 0.0])
    rewards = np.array([1, 1, 1, 0, 9, 8, 8, 8.0])
    assert np.corrcoef(matches, rewards)[0, 1] < 0
    readings = answer_readings(matches, rewards, np.repeat([4, 2], 4))
    assert scalar(readings[CORRELATION]) == pytest.approx(1)
    alone = answer_readings(matches, rewards, np.arange(8))  # no groups: the whole batch
    assert scalar(alone[CORRELATION]) == pytest.approx(np.corrcoef(matches, rewards)[0, 1])


def test_groups_without_both_answers_and_huge_rewards_do_not_warn():
    matches = np.array([1, 1, 0, 0.0])
    by_prompt = answer_readings(matches, matches / 3, np.array([1, 1, 2, 2]))
    assert isinstance(by_prompt[CORRELATION], NotApplicable)
    assert by_prompt[DISAGREEMENT] == Rate(0, 4)
    huge = answer_readings(matches, matches * 1e300, np.zeros(4))
    assert scalar(huge[CORRELATION]) == pytest.approx(1)


def test_a_batch_needs_texts_and_references(real_batch):
    count = len(real_batch.sequence_ids)
    batch = replace(real_batch, texts=["#1", "#2"] * (count // 2), references=["1"] * count)
    assert CORRELATION in answers_of(batch)
    assert answers_of(replace(batch, references=[""] * count)) == {}
    assert answers_of(replace(batch, texts=None)) == {}


def test_identical_and_different_responses_of_a_group():
    groups = groups_of(np.repeat([7, 3, 5], 4))
    texts = np.array([0, 0, 1, 2, 0, 0, 3, 3, 5, 6, 7, 8])
    rewards = np.array([1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1.0])
    readings = equal_text_readings(groups, texts, rewards)
    # Group 7: one equal pair without a difference. Group 3: both equal pairs differ.
    assert readings[EQUAL] == Mean.of([0.0, 0.5])
    assert scalar(readings[OTHER]) == pytest.approx((4 / 5 / 2 + 2 / 4 / 2) / 2)
    shifted = equal_text_readings(groups, texts, 3 * rewards + 100)
    ratio = scalar(readings[EQUAL]) / scalar(readings[OTHER])
    assert scalar(shifted[EQUAL]) / scalar(shifted[OTHER]) == pytest.approx(ratio)


def test_groups_of_one_kind_of_pairs_are_left_out():
    groups = groups_of(np.repeat([1, 2], 3))
    readings = equal_text_readings(groups, np.array([0, 0, 0, 1, 2, 3]), np.arange(6.0))
    assert isinstance(readings[EQUAL], NotApplicable)
    assert isinstance(readings[OTHER], NotApplicable)


def test_the_place_in_a_group_explains_nothing_of_permuted_groups():
    """Over all orders of a group, the share is 0 on average; it is 1 if only the place counts."""
    values = np.array([[0.0, 1.0, 5.0], [2.0, 2.0, 7.0]])
    shares = [
        scalar(share_by_place(groups_of(np.repeat([4, 9], 3)), np.concatenate([values[0], row])))
        for row in map(np.array, permutations(values[1]))
    ]
    assert np.mean(shares) == pytest.approx(0)
    fixed = np.tile([0.0, 0.0, 1.0], 4) + np.repeat([0.0, 10.0, 20.0, -5.0], 3)
    assert scalar(share_by_place(groups_of(np.repeat(range(4), 3)), fixed)) == pytest.approx(1)


def test_places_need_two_groups_of_equal_size_with_different_values():
    ids = np.array([0, 0, 1, 1, 2, 2, 2])
    one = share_by_place(groups_of(ids), np.array([0.0, 1.0, 3.0, 3.0, 0.0, 1.0, 2.0]))
    assert isinstance(one, NotApplicable)
    two = share_by_place(groups_of(ids), np.array([0.0, 1.0, 3.0, 4.0, 0.0, 1.0, 2.0]))
    assert scalar(two) == pytest.approx(1)
