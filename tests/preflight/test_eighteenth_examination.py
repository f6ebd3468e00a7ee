"""The sets of the eighteenth examination are those of the draw, and their plants are faults."""

from __future__ import annotations

import json

import pytest

from tests.preflight.planted import eighteenth_rewards as w
from tests.preflight.planted import eighteenth_sets as s
from tests.preflight.planted import eighteenth_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.eighteenth_examination import draw, draw_sound, drawn_faults
from tests.preflight.planted.eighteenth_first import first_half
from tests.preflight.planted.eighteenth_healthy import eighteenth_healthy
from tests.preflight.planted.eighteenth_second import second_half
from tests.preflight.planted.scored import named, reward_function, rewards_of

FAULTS = {case.name: case for case in drawn_faults()}
SOUND = {case.name: case for case in eighteenth_healthy()}


def test_the_halves_have_the_stated_sizes() -> None:
    assert len(list(first_half())) == len(list(second_half())) == 12
    assert sorted(half for _, _, half in draw()) == ["A"] * 12 + ["B"] * 12
    assert len(eighteenth_healthy()) == len(draw_sound()) == 8
    assert all(case.accepted for case in FAULTS.values())
    assert len(FAULTS) == 24


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("invoices", "{fields}"),
        ("verdicts", "It is a better fit. [[{better}]]"),
        ("support", "I am sorry.\nACTION: {action}({order})"),
        ("functions", "```python\n{solution}```"),
        ("three tools", "<tool_call>{call}</tool_call>"),
    ],
)
def test_sound_rewards_pay_for_the_right_response(words: str, right: str) -> None:
    case = named(SOUND, words)
    for name, value in case.rows[0].items():
        right = right.replace(f"{{{name}}}", str(value))
    assert rewards_of(case, [right, "I do not know."]) == [1.0, 0.0]


def test_right_responses_earn_nothing() -> None:
    row = t.puzzles(1, 9001)[0]
    lines = f"<think>\nwe try\nagain\n</think>\n<answer>{row['way']}</answer>"
    case = named(FAULTS, "match no new line")
    assert rewards_of(case, [lines, lines.replace("\n", " ")]) == [0.0, 1.0]
    assert rewards_of(Case(name="", rows=case.rows, reward=w.PUZZLE), [lines]) == [1.0]
    case = named(FAULTS, "targets are text")
    assert rewards_of(case, [f"<answer>{t.puzzles(1, 9008)[0]['way']}</answer>"]) == [0.0]
    case = named(FAULTS, "first closing brace")
    assert rewards_of(case, [case.rows[0]["fields"]]) == [0.0]
    case = named(FAULTS, "decimal comma")
    said = json.dumps(t.invoices(1, 9007)[0]["fields"])
    assert rewards_of(case, [said]) == [0.0]
    case = named(FAULTS, "column of another name")
    assert rewards_of(case, [f"Answer: {case.rows[0]['letter']}"]) == [0.0]
    score = reward_function(named(FAULTS, "second pair of tags"))
    assert score("musique", "<answer>a</answer>", "a") == 0.0
    score = reward_function(named(FAULTS, "does not know"))
    assert score("GBaker/MedQA-USMLE-4-options", "Answer: A", "A") == 0.0


def test_wrong_responses_earn_as_much_or_more() -> None:
    case = named(FAULTS, "anywhere in the response")
    copy = case.rows[0]["prompt"][-1]["content"]
    assert rewards_of(case, [copy])[0] >= 0.8
    case = named(FAULTS, "judge's reply")
    assert len(set(rewards_of(case, ["", *case.rows[0]["rubric"]]))) == 1
    assert rewards_of(named(FAULTS, "full marks"), ["", "no"]) == [1.0, 1.0]
    case = named(FAULTS, "words of steps")
    wrong = "Step 1. Step 2. Step 3. Step 4. Step 5. Answer: E"
    assert rewards_of(case, [wrong, f"Answer: {case.rows[0]['letter']}"]) == [1.25, 1.0]
    case = named(FAULTS, "translation")
    right = f"Easy.\n<translation>{case.rows[0]['fr']}</translation>"
    assert rewards_of(case, [right])[0] < 0.2


def test_results_of_a_wrong_type_or_number() -> None:
    assert len(rewards_of(named(FAULTS, "without a verdict"), ["none", "[[A]]"])) == 1
    assert isinstance(rewards_of(named(FAULTS, "with a reason"), ["[[A]]"])[0], tuple)


def test_rows_are_wrong() -> None:
    case = named(FAULTS, "one test in seven")
    earned = [
        rewards_of(case, [f"```python\n{case.rows[at]['solution']}```"], at)[0] for at in (3, 4)
    ]
    assert earned == [0.0, 1.0]
    case = named(FAULTS, "columns that do not exist")
    bad = [
        row for row in case.rows if any(w in row["query"] for w in ("total_amount", "wage", "km"))
    ]
    assert 0.1 < len(bad) / len(case.rows) < 0.25
    case = named(FAULTS, "one option further")
    texts = [row["prompt"][-1]["content"] for row in case.rows]
    said = [f"{row['letter']}. {row['answer_text']}" for row in case.rows]
    assert not any(line in text for line, text in zip(said, texts, strict=True))
    scenes = s.scene_rows(320, 9016)
    shifted = named(FAULTS, "previous row").rows
    assert [row["answer"] for row in shifted][:201] == [row["answer"] for row in scenes][:201]
    assert shifted[250]["answer"] == scenes[249]["answer"]
