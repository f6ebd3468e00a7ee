"""Groups that agree on an answer, and whether it counts as correct."""

from __future__ import annotations

import random

import numpy as np
import pytest

from grpodoctor.measure.agreement import (
    AGREED,
    AGREED_INCORRECT,
    agreement_readings,
    stated_answers,
)
from grpodoctor.measure.groups import groups_of
from grpodoctor.vocabulary.values import NotApplicable, Rate, Reading


def readings_of(*groups: tuple[list[str], list[float]]) -> dict[str, Reading]:
    texts = [text for each, _ in groups for text in each]
    correct = np.array([value for _, values in groups for value in values])
    ids = np.repeat(np.arange(len(groups)), [len(each) for each, _ in groups])
    return agreement_readings(groups_of(ids), stated_answers(texts), correct)


def test_a_wrong_key_shows_as_a_group_that_agrees_and_fails() -> None:
    readings = readings_of(
        (["so #7", "3 + 4 #7", r"\boxed{7.0}", "#9"], [0, 0, 0, 1]),
        (["#5", "#5", "#5", "#5"], [1, 1, 1, 1]),
        (["#1", "#2", "#1", "#2"], [0, 1, 0, 1]),
    )
    assert (readings[AGREED], readings[AGREED_INCORRECT]) == (Rate(2, 3), Rate(1, 2))


def test_one_of_few_choices_is_no_agreement() -> None:
    """A policy that guesses agrees on one of two or four choices, and is mostly wrong."""
    chance = random.Random(1)
    for choices in (("yes", "no"), "ABCD", "01", "1234"):
        groups = [([f"#{chance.choice(choices)}"] * 4, [0.0] * 4) for _ in range(40)]
        readings = readings_of(*groups)
        assert all(isinstance(each, NotApplicable) for each in readings.values())
    free = [([f"#{group}"] * 4, [0.0] * 4) for group in range(40)]
    assert readings_of(*free)[AGREED] == Rate(40, 40)


def test_responses_without_an_answer_agree_on_nothing() -> None:
    readings = readings_of((["no"] * 4, [0] * 4), (["#1", "#2", "#3", "no"], [0] * 4))
    assert readings[AGREED] == Rate(0, 2)
    assert isinstance(readings[AGREED_INCORRECT], NotApplicable)
    assert readings_of((["no"] * 4, [0] * 4)) == {}


def test_groups_of_three_have_no_majority_of_three_quarters() -> None:
    assert readings_of((["#1"] * 3, [0] * 3)) == {}


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("#1,000", r"it is \boxed{1000.0}", True),
        ("# 12 Apples", r"\boxed{12 apples}", True),
        ("#1", "#2", False),
        (r"\boxed{\frac12}", r"\boxed{\frac13}", False),
    ],
)
def test_equal_answers_have_one_number(left: str, right: str, *, equal: bool) -> None:
    one, other = stated_answers([left, right])
    assert one
    assert other
    assert (one == other) == equal


@pytest.mark.parametrize(
    "text", ["## The result of the long sum\nIt is 7.", "x = 3  # done", "# B"]
)
def test_headings_comments_and_letters_are_no_answers(text: str) -> None:
    assert not stated_answers([text]).any()


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x\nprint(f(3))  # 55\n```",
        "\\boxed{5} and \\boxed{7}",
        "<answer>5 * 11 + 2</answer> so \\boxed{57}",
    ],
)
def test_a_part_of_what_is_judged_is_no_final_answer(text: str) -> None:
    """A comment in a program, one of two answers, and a box behind the answer that counts."""
    assert not stated_answers([text]).any()


def test_the_same_answer_twice_and_a_box_in_tags_are_final_answers() -> None:
    found = stated_answers(["\\boxed{57}, so \\boxed{57}", "x <answer>\\boxed{57}</answer>", "#57"])
    assert found[0]
    assert len(set(found.tolist())) == 1
