"""Rewards of responses to one prompt that state the same answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from grpodoctor.measure.agreement import stated_answers
from grpodoctor.measure.groups import groups_of
from grpodoctor.measure.same_answers import BY_LENGTH, OTHER, SAME, same_answer_readings
from grpodoctor.vocabulary.values import Mean, NotApplicable

TEXTS = ["10-3#7", "12-5+0#7", "#7", "#7", "4#4", "none", "5+4#19", "#19", "6+6#12", "2*6#12"]
GROUPS = np.array([1, 1, 1, 1, 1, 1, 2, 2, 2, 2])


def readings(rewards: list[float]) -> dict[str, object]:
    texts = np.unique(TEXTS, return_inverse=True)[1]
    lengths = np.array([len(text) for text in TEXTS], np.float64)
    groups = groups_of(GROUPS)
    return same_answer_readings(groups, stated_answers(TEXTS), texts, np.array(rewards), lengths)


def by_pairs(rewards: list[float]) -> tuple[float, float]:
    """The two variances, pair by pair."""
    same: list[float] = []
    other: list[float] = []
    answers = stated_answers(TEXTS)
    for group in (1, 2):
        pairs: dict[bool, list[float]] = {True: [], False: []}
        rows = [row for row in range(len(TEXTS)) if GROUPS[row] == group and answers[row]]
        for left, right in itertools.combinations(rows, 2):
            if TEXTS[left] != TEXTS[right]:
                square = (rewards[left] - rewards[right]) ** 2 / 2
                pairs[bool(answers[left] == answers[right])].append(square)
        same.append(float(np.mean(pairs[True])))
        other.append(float(np.mean(pairs[False])))
    return float(np.mean(same)), float(np.mean(other))


def test_variances_are_those_of_all_pairs() -> None:
    rewards = [1.0, 0.5, 2.0, 2.0, 0.25, 9.0, 0.0, 1.5, 1.0, 0.75]
    found = readings(rewards)
    same, other = found[SAME], found[OTHER]
    assert isinstance(same, Mean)
    assert isinstance(other, Mean)
    assert (same.value, other.value) == pytest.approx(by_pairs(rewards))


def test_a_reward_for_the_answer_is_the_same_for_all_that_state_it() -> None:
    correct = [float(text.endswith(("#7", "#12"))) for text in TEXTS]
    same = readings(correct)[SAME]
    assert isinstance(same, Mean)
    assert same.value == pytest.approx(0.0, abs=1e-12)
    assert isinstance(readings(correct)[BY_LENGTH], NotApplicable)


def test_a_reward_for_the_length_is_correlated_with_it() -> None:
    correlation = readings([-2.0 * len(text) for text in TEXTS])[BY_LENGTH]
    assert isinstance(correlation, Mean)
    assert correlation.value == pytest.approx(-1.0)


def test_marks_that_are_alike_and_responses_without_answers_are_not_judged() -> None:
    groups, texts = groups_of(np.array([1, 1, 2, 2])), np.arange(4)
    ones = np.ones(4)
    marks = stated_answers(["a#1", "b#1", "c#1", "d#2"])
    assert isinstance(same_answer_readings(groups, marks, texts, ones, ones)[SAME], NotApplicable)
    assert same_answer_readings(groups, np.zeros(4, np.uint64), texts, ones, ones) == {}
