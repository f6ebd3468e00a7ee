"""Responses of an earlier step that come back."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from grpodoctor.measure.returned_groups import (
    RETURNED,
    RETURNED_BY_CHANCE,
    ReturnedGroups,
    most_likely,
)
from grpodoctor.vocabulary.values import NotApplicable, Rate, Reading, scalar


def step_of(*groups: tuple[int, list[int]]) -> dict[str, np.ndarray]:
    """Columns of groups, each with its prompt and the number of each response."""
    rows = [(at + 1, prompt, text) for at, (prompt, texts) in enumerate(groups) for text in texts]
    columns = np.array(rows, np.uint64).T
    return dict(zip(("group", "prompt", "text"), columns, strict=True))


def readings_of(*steps: dict[str, np.ndarray]) -> list[dict[str, Reading]]:
    earlier = ReturnedGroups()
    return [earlier.readings(at, columns) for at, columns in enumerate(steps, start=1)]


def test_a_cache_returns_groups_of_different_steps_in_any_order() -> None:
    first, second, third = readings_of(
        step_of((1, [1, 2, 3]), (2, [4, 5, 6])),
        step_of((3, [7, 8, 9]), (4, [1, 1, 2])),
        step_of((1, [3, 1, 2]), (3, [9, 8, 7]), (5, [1, 2, 3])),
    )
    assert (first, second) == ({}, {})
    assert third[RETURNED] == Rate(2, 2)
    assert scalar(third[RETURNED_BY_CHANCE]) == pytest.approx(6 / 27)


def test_new_responses_to_an_old_prompt_are_not_returned() -> None:
    _, second = readings_of(step_of((1, [1, 2, 3])), step_of((1, [1, 2, 4])))
    assert second[RETURNED] == Rate(0, 1)


def test_a_batch_that_is_used_twice_by_design_is_left_out() -> None:
    batch = step_of((1, [1, 2, 3]), (2, [4, 5, 6]))
    assert isinstance(readings_of(batch, batch)[1][RETURNED], NotApplicable)


def test_unknown_prompts_and_responses_are_left_out() -> None:
    for unknown in (step_of((0, [1, 2])), step_of((1, [0, 2])), step_of((1, [2]))):
        assert readings_of(unknown, unknown)[1] == {}


@pytest.mark.parametrize("texts", [(1, 1, 1, 1), (1, 1, 2, 2), (1, 1, 1, 2), (1, 2, 3, 3)])
def test_no_policy_gives_a_set_more_often_than_the_bound(texts: tuple[int, ...]) -> None:
    """Every policy on a grid, by summing over all draws of four responses."""

    def chance(policy: tuple[float, ...]) -> float:
        draws = product(range(3), repeat=4)
        wanted = sorted(each - 1 for each in texts)
        return sum(np.prod([policy[each] for each in draw]) for draw in draws
                   if sorted(draw) == wanted)  # fmt: skip

    grid = [(a / 8, b / 8, (8 - a - b) / 8) for a in range(9) for b in range(9 - a)]
    assert max(map(chance, grid)) == pytest.approx(most_likely(texts))
