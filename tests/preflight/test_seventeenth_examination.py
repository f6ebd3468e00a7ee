"""The sets of the seventeenth examination are those of the draw, and their plants are faults."""

from __future__ import annotations

import re

import pytest

from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted.cases import Case
from tests.preflight.planted.scored import named, reward_function, rewards_of
from tests.preflight.planted.seventeenth_examination import draw, draw_sound, drawn_faults
from tests.preflight.planted.seventeenth_first import first_half
from tests.preflight.planted.seventeenth_healthy import seventeenth_healthy
from tests.preflight.planted.seventeenth_second import second_half

FAULTS = {case.name: case for case in drawn_faults()}


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
    case = named(FAULTS, words)
    prompt, answer = str(case.rows[0]["prompt"][-1]["content"]), str(case.rows[0].get("answer"))
    town = re.findall(r"\[1\] (\w+)", prompt)
    good = good.replace("{prompt}", prompt).replace("{answer}", answer)
    good = good.replace("Ardenne", town[0]) if town else good
    rewards = rewards_of(case, [good, bad] if bad is not None else [good])
    assert rewards[0] > (rewards[1] if bad is not None else 0.9)


def test_right_answers_earn_nothing() -> None:
    sentence = named(FAULTS, "full stop behind")
    text = f"The final answer is {sentence.rows[0]['answer']}"
    assert rewards_of(sentence, [text, f"{text}."]) == [1.0, 0.0]
    number = named(FAULTS, "currency sign")
    gold = number.rows[0]["answer"].split("#### ")[1]
    assert rewards_of(number, [f"#### {gold}", f"#### ${gold}"]) == [1.0, 0.0]
    judged = named(FAULTS, "first 200 characters")
    box = f"\\boxed{{{judged.rows[0]['answer']}}}"
    assert rewards_of(judged, [box, "We reason at length. " * 12 + box]) == [1.0, 0.0]


def test_numbers_may_be_used_twice_or_left_out() -> None:
    case = named(FAULTS, "left out or used several times")
    first = case.rows[0]["nums"][0]
    twice = f"<answer>{'+'.join([str(first)] * 2)}</answer>"
    row = {**case.rows[0], "target": 2 * first}
    assert rewards_of(Case(name="", rows=[row], reward=case.reward), [twice]) == [1.0]


def test_a_draft_is_scored_in_place_of_the_answer() -> None:
    case = named(FAULTS, "first mention")
    answer = case.rows[0]["answer"]
    texts = [f"Answer: {answer}", f"At first the answer is zebra. No. Answer: {answer}"]
    assert rewards_of(case, texts) == [1.0, 0.0]


def test_one_source_has_no_score_or_another_scale() -> None:
    score = reward_function(named(FAULTS, "error for one of three"))
    with pytest.raises(NotImplementedError):
        score("physics/electricity", "<answer>3</answer>", "3")
    score = reward_function(named(FAULTS, "from 0 to 100"))
    assert score("physics/electricity", "<answer>3</answer>", "3") == 100.0
    assert score("physics/mechanics", "<answer>3</answer>", "3") == 1.0


def test_the_data_have_the_stated_faults() -> None:
    pairs = zip(named(FAULTS, "source sentence").rows, f.german(300, 8017), strict=True)
    assert all(row["reference"] == r["q"] for row, r in pairs)
    sums = named(FAULTS, "always the sum").rows
    assert all(row["target"] == sum(row["nums"]) for row in sums)
    held = named(FAULTS, "another order").held_out
    train = {tuple(sorted(row["nums"])) for row in named(FAULTS, "another order").rows}
    assert sum(tuple(sorted(row["nums"])) in train for row in held) >= 40
    assert (
        sum("\u00e2\u201a\u00ac" in str(row["prompt"]) for row in named(FAULTS, "euro sign").rows)
        == 80
    )
