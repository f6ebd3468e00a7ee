"""The sets of the sixteenth examination are those of the draw, and their plants are faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted.cases import Case
from tests.preflight.planted.sixteenth_examination import draw, draw_sound, drawn_faults
from tests.preflight.planted.sixteenth_first import first_half
from tests.preflight.planted.sixteenth_healthy import sixteenth_healthy
from tests.preflight.planted.sixteenth_second import second_half

FAULTS = {case.name: case for case in drawn_faults()}


def _rewards(case: Case, texts: Sequence[str]) -> list[Any]:
    """The rewards of responses to the first row."""
    source: dict[str, Any] = {}
    exec(case.reward, source)  # noqa: S102  # the plants' own code
    name = [line for line in case.reward.splitlines() if line.startswith("def ")][-1]
    function = source[name.removeprefix("def ").partition("(")[0]]
    columns = {key: [value] * len(texts) for key, value in case.rows[0].items() if key != "prompt"}
    found: list[Any] = function(
        prompts=[case.rows[0].get("prompt")] * len(texts),
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        **columns,
    )
    return found


def _named(words: str) -> Case:
    (case,) = (each for name, each in FAULTS.items() if words in name)
    return case


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
    first, second = _rewards(_named(words), [good, bad])
    assert first > second


def test_a_right_answer_earns_nothing_or_no_number() -> None:
    floats = _named("floats, compared as text")
    right = f"<answer>{int(floats.rows[0]['answer'])}</answer>"
    assert _rewards(floats, [right]) == [0.0]
    headed = _named("heading must be the first")
    text = f"Summary: {headed.rows[0]['summary']}"
    assert _rewards(headed, [text, f"It is about a town.\n{text}"]) == [1.0, 0.0]
    assert _rewards(_named("without a known label"), ["I do not know"]) == [None]
    with pytest.warns(RuntimeWarning, match="Mean of empty slice|invalid value"):
        (nan,) = _rewards(_named("mean of no rows"), ["no query"])
    assert nan != nan


@pytest.mark.parametrize(
    ("words", "right", "wrong"),
    [
        ("one of several boxes", r"\boxed{%s}", r"\boxed{-77}"),
        ("one of several boxes", r"\boxed{-77} \boxed{%s}", ""),
    ],
)
def test_one_of_several_answers_is_enough(words: str, right: str, wrong: str) -> None:
    case = _named(words)
    assert _rewards(case, [right % case.rows[0]["answer"], wrong]) == [1.0, 0.0]


def test_solutions_fail_a_part_of_the_tests() -> None:
    case = _named("its solution fails")
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
    case = _named("first result of the solution")
    solutions = f.school(300, 7012)
    differ = [int(row["answer"]) != r["a"] for row, r in zip(case.rows, solutions, strict=True)]
    assert all(differ)
