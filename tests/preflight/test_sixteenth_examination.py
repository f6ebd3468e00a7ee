"""The sets of the sixteenth examination are those of the draw, and their plants are faults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted.scored import named, rewards_of
from tests.preflight.planted.sixteenth_examination import draw, draw_sound, drawn_faults
from tests.preflight.planted.sixteenth_first import first_half
from tests.preflight.planted.sixteenth_healthy import sixteenth_healthy
from tests.preflight.planted.sixteenth_second import second_half

FAULTS = {case.name: case for case in drawn_faults()}


def test_the_halves_have_the_stated_sizes() -> None:
    assert len(list(first_half())) == len(list(second_half())) == 12
    assert sorted(half for _, _, half in draw()) == ["A"] * 12 + ["B"] * 12
    assert len(sixteenth_healthy()) == len(draw_sound()) == 8
    assert all(case.accepted and case.named for case in FAULTS.values())
    assert len(FAULTS) == 24


@pytest.mark.parametrize(
    ("words", "good", "bad"),
    [
        ("earns one half", "", "<answer>-99</answer>"),
        ("both verdicts", "[[A]] or [[B]]", "none"),
        ("is part of the solution", "I do not know.", "#### -5"),
        ("four times as much", "<think>a</think><answer>-</answer>", "-"),
    ],
)
def test_a_response_without_the_answer_earns_more(words: str, good: str, bad: str) -> None:
    first, second = rewards_of(named(FAULTS, words), [good, bad])
    assert first > second


def test_a_right_answer_earns_nothing_or_no_number() -> None:
    floats = named(FAULTS, "floats, compared as text")
    right = f"<answer>{int(floats.rows[0]['answer'])}</answer>"
    assert rewards_of(floats, [right]) == [0.0]
    headed = named(FAULTS, "heading must be the first")
    text = f"Summary: {headed.rows[0]['summary']}"
    assert rewards_of(headed, [text, f"It is about a town.\n{text}"]) == [1.0, 0.0]
    assert rewards_of(named(FAULTS, "without a known label"), ["I do not know"]) == [None]
    with pytest.warns(RuntimeWarning, match="Mean of empty slice|invalid value"):
        (nan,) = rewards_of(named(FAULTS, "mean of no rows"), ["no query"])
    assert nan != nan


@pytest.mark.parametrize(
    ("words", "right", "wrong"),
    [
        ("one of several boxes", r"\boxed{%s}", r"\boxed{-77}"),
        ("one of several boxes", r"\boxed{-77} \boxed{%s}", ""),
    ],
)
def test_one_of_several_answers_is_enough(words: str, right: str, wrong: str) -> None:
    case = named(FAULTS, words)
    assert rewards_of(case, [right % case.rows[0]["answer"], wrong]) == [1.0, 0.0]


def test_solutions_fail_a_part_of_the_tests() -> None:
    case = named(FAULTS, "its solution fails")
    failing = 0
    for row in case.rows[:12]:
        names: dict[str, Any] = {}
        exec(row["solution"], names)  # noqa: S102
        try:
            for each in row["tests"]:
                exec(each, names)  # noqa: S102
        except AssertionError:
            failing += 1
    assert failing == 2


def test_the_first_results_are_not_the_last() -> None:
    case = named(FAULTS, "first result of the solution")
    solutions = f.school(300, 7012)
    differ = [int(row["answer"]) != r["a"] for row, r in zip(case.rows, solutions, strict=True)]
    assert all(differ)
