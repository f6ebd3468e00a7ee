"""Groups that have the same prompt in TRL's completions: their advantages tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grpodoctor.frameworks.trl.rollouts import from_columns

MIXED = [-0.72, 1.21, -0.72, -0.72, 1.21, -0.72, 1.21, -0.75]
"""The advantages of a group of eight; no half of it is centred."""
EQUAL = [0.0] * 8


def groups_of(prompts: list[str], advantages: Sequence[float]) -> list[str]:
    rows = [f"row {number}" for number in range(len(prompts))]
    table = {"prompt": prompts, "completion": rows, "advantage": list(advantages)}
    responses = from_columns(table, np.zeros(len(rows), np.int64), rows)
    assert responses.groups is not None
    return responses.groups


def sizes_of(groups: list[str]) -> list[int]:
    return [groups.count(name) for name in dict.fromkeys(groups)]


def test_a_batch_with_one_prompt_has_several_groups() -> None:
    advantages = [*EQUAL, *MIXED, *EQUAL, *MIXED]
    assert sizes_of(groups_of(["3+4="] * 32, advantages)) == [8] * 4


def test_a_prompt_that_appears_twice_has_two_groups() -> None:
    prompts = ["a"] * 8 + ["b"] * 16 + ["c"] * 8
    assert sizes_of(groups_of(prompts, [*MIXED, *EQUAL, *MIXED, *EQUAL])) == [8] * 4


def test_a_prompt_that_comes_again_later_has_two_groups() -> None:
    """Their baselines differ, so equal responses of the two have different advantages."""
    prompts = ["a"] * 8 + ["b"] * 8 + ["a"] * 8 + ["c"] * 8
    assert sizes_of(groups_of(prompts, [*MIXED, *EQUAL, *MIXED, *EQUAL])) == [8] * 4
    prompts = ["a"] * 8 + ["b"] * 16 + ["a"] * 8
    assert sizes_of(groups_of(prompts, [*MIXED, *EQUAL, *MIXED, *EQUAL])) == [8] * 4


def test_labels_and_targets_of_puzzles_are_no_answers() -> None:
    table = {"prompt": ["a"], "completion": ["<answer>3 * 8</answer>"], "reward": [1.0]}
    for more in ({"label": [3]}, {"target": [24], "nums": [[3, 8]]}):
        responses = from_columns({**table, **more}, np.zeros(1, np.int64), ["row"])
        assert responses.references is None
        assert responses.rewards_B is not None
    responses = from_columns({**table, "target": [24]}, np.zeros(1, np.int64), ["row"])
    assert responses.references == ["24"]


def test_ordinary_groups_keep_their_prompts() -> None:
    prompts = ["a"] * 8 + ["b"] * 8
    assert groups_of(prompts, [*MIXED, *EQUAL]) == prompts


def test_one_group_is_not_split() -> None:
    halves = [1.0, -1.0, 1.0, -1.0] * 2
    assert groups_of(["a"] * 8, halves) == ["a"] * 8
    assert groups_of(["a"] * 32, [*MIXED, *[0.3] * 24]) == ["a"] * 32
    assert groups_of(["a"] * 32, [0.0] * 32) == ["a"] * 32
