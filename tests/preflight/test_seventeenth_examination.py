"""The sets of the seventeenth examination are those of the draw, and their plants are faults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted.cases import Case
from tests.preflight.planted.seventeenth_examination import draw, draw_sound, drawn_faults
from tests.preflight.planted.seventeenth_first import first_half
from tests.preflight.planted.seventeenth_healthy import seventeenth_healthy
from tests.preflight.planted.seventeenth_second import second_half

FAULTS = {case.name: case for case in drawn_faults()}


def _function(case: Case) -> Any:
    source: dict[str, Any] = {}
    exec(case.reward, source)  # noqa: S102  # the plants' own code
    return source[re.findall(r"^def (\w+)", case.reward, re.MULTILINE)[-1]]


def _rewards(case: Case, texts: Sequence[str], at: int = 0) -> list[Any]:
    """The rewards of responses to a row."""
    row = case.rows[at]
    columns = {key: [value] * len(texts) for key, value in row.items() if key != "prompt"}
    found: list[Any] = _function(case)(
        prompts=[row.get("prompt")] * len(texts),
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        **columns,
    )
    return found


def _named(words: str) -> Case:
    (case,) = (each for name, each in FAULTS.items() if words in name)
    return case


def test_the_halves_have_the_stated_sizes() -> None:
    assert len(list(first_half())) == len(list(second_half())) == 18
    assert sorted(half for _, _, half in draw()) == ["A"] * 18 + ["B"] * 18
    assert len(seventeenth_healthy()) == len(draw_sound()) == 12
    assert all(case.accepted for case in FAULTS.values())
    assert len(FAULTS) == 36


@pytest.mark.parametrize(
    ("words", "good", "bad"),
    [
        ("only wrong fields", "", '{"sender": "x"}'),
        ("part of the judge's", r"\boxed{-77}", None),
        ("copy of the article", "{prompt}", "no"),
        ("any phrase of the passages", "<answer>Ardenne</answer>", "<answer>x</answer>"),
        ("anywhere in the response", "It may be {answer} or not.", "no"),
    ],
)
def test_a_response_without_the_answer_earns_more(words: str, good: str, bad: str | None) -> None:
    case = _named(words)
    prompt, answer = str(case.rows[0]["prompt"][-1]["content"]), str(case.rows[0].get("answer"))
    town = re.findall(r"\[1\] (\w+)", prompt)
    good = good.replace("{prompt}", prompt).replace("{answer}", answer)
    good = good.replace("Ardenne", town[0]) if town else good
    rewards = _rewards(case, [good, bad] if bad is not None else [good])
    assert rewards[0] > (rewards[1] if bad is not None else 0.9)


def test_right_answers_earn_nothing() -> None:
    sentence = _named("full stop behind")
    text = f"The final answer is {sentence.rows[0]['answer']}"
    assert _rewards(sentence, [text, f"{text}."]) == [1.0, 0.0]
    number = _named("currency sign")
    gold = number.rows[0]["answer"].split("#### ")[1]
    assert _rewards(number, [f"#### {gold}", f"#### ${gold}"]) == [1.0, 0.0]
    judged = _named("first 200 characters")
    box = f"\\boxed{{{judged.rows[0]['answer']}}}"
    assert _rewards(judged, [box, "We reason at length. " * 12 + box]) == [1.0, 0.0]


def test_numbers_may_be_used_twice_or_left_out() -> None:
    case = _named("left out or used several times")
    first = case.rows[0]["nums"][0]
    twice = f"<answer>{'+'.join([str(first)] * 2)}</answer>"
    row = {**case.rows[0], "target": 2 * first}
    assert _rewards(Case(name="", rows=[row], reward=case.reward), [twice]) == [1.0]


def test_a_draft_is_scored_in_place_of_the_answer() -> None:
    case = _named("first mention")
    answer = case.rows[0]["answer"]
    texts = [f"Answer: {answer}", f"At first the answer is zebra. No. Answer: {answer}"]
    assert _rewards(case, texts) == [1.0, 0.0]


def test_one_source_has_no_score_or_another_scale() -> None:
    score = _function(_named("error for one of three"))
    with pytest.raises(NotImplementedError):
        score("physics/electricity", "<answer>3</answer>", "3")
    score = _function(_named("from 0 to 100"))
    assert score("physics/electricity", "<answer>3</answer>", "3") == 100.0
    assert score("physics/mechanics", "<answer>3</answer>", "3") == 1.0


def test_the_data_have_the_stated_faults() -> None:
    pairs = zip(_named("source sentence").rows, f.german(300, 8017), strict=True)
    assert all(row["reference"] == r["q"] for row, r in pairs)
    sums = _named("always the sum").rows
    assert all(row["target"] == sum(row["nums"]) for row in sums)
    held = _named("another order").held_out
    train = {tuple(sorted(row["nums"])) for row in _named("another order").rows}
    assert sum(tuple(sorted(row["nums"])) in train for row in held) >= 40
    assert sum("\u00e2\u201a\u00ac" in str(row["prompt"]) for row in _named("euro sign").rows) == 80
