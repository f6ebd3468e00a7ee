"""The sets of the nineteenth examination have their halves, and their plants are faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.preflight.planted.nineteenth_examination import (
    drawn_faults,
    first_half,
    nineteenth_healthy,
    second_half,
)
from tests.preflight.planted.nineteenth_healthy import healthy_first, healthy_second
from tests.preflight.planted.scored import named, reward_function, rewards_of

FAULTS = {case.name: case for case in drawn_faults()}
SOUND = {case.name: case for case in nineteenth_healthy()}


def test_the_halves_have_the_stated_sizes() -> None:
    assert len(first_half()) == len(second_half()) == 12
    assert len(healthy_first()) == len(healthy_second()) == 4
    assert len(FAULTS) == 24
    assert all(case.accepted for case in FAULTS.values())


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("kept by prompt", "It fits. Verdict: {verdict}"),
        ("sorted by length", "<headline>{headline}</headline>"),
        ("tiny", "<answer>{value}</answer>"),
        ("three scripts", "<answer>{city}</answer>"),
        ("fifth of the questions", "<answer>{answer}</answer>"),
        ("example in the prompts", "\\boxed{{answer}}"),
    ],
)
def test_sound_rewards_pay_for_the_right_response(words: str, right: str) -> None:
    case = named(SOUND, words)
    for name, value in case.rows[3].items():
        right = right.replace(f"{{{name}}}", str(value))
    assert rewards_of(case, [right, "I do not know."], 3) == [1.0, 0.0]


def test_topics_and_printed_lines_are_read() -> None:
    case = named(SOUND, "topics in any order")
    said = "Topics: " + ", ".join(reversed(case.rows[0]["topics"]))
    assert rewards_of(case, [said, "Topics: none"], 0) == [1.0, 0.0]
    assert rewards_of(case, ["Topics: none"], 1) == [1.0]
    score = reward_function(named(SOUND, "None and inf"))
    assert score("python", "It is a list.\nAnswer: None", "None") == 1.0
    assert score("python", "Answer: inf", "inf") == 1.0


def test_rewards_depend_on_other_calls_or_responses() -> None:
    case = named(FAULTS, "kept by the text")
    score = reward_function(case)
    said = [[{"role": "assistant", "content": "Verdict: yes"}]]
    assert score(prompts=[""], completions=said, verdict=["yes"]) == [1.0]
    assert score(prompts=[""], completions=said, verdict=["no"]) == [1.0]
    case = named(FAULTS, "smallest and largest")
    assert rewards_of(case, [f"<price>{case.rows[0]['price'] * 0.9}</price>"]) == [0.0]
    case = named(FAULTS, "order of the lengths")
    right = f"<headline>{case.rows[0]['headline']}</headline>"
    assert rewards_of(case, [right, "no"]) == [0.0, 1.0]
    score = reward_function(named(FAULTS, "default argument"))
    assert [len(score(completions=said, answer=["1"])) for _ in range(2)] == [1, 2]


def test_wrong_responses_earn_the_reward() -> None:
    case = named(FAULTS, "a to z")
    assert rewards_of(case, ["<answer>Лондон</answer>"], 1) == [1.0]
    assert rewards_of(named(FAULTS, "tolerance"), ["<answer>0</answer>"]) == [1.0]
    case = named(FAULTS, "part of the number")
    assert rewards_of(case, [f"<answer>9{case.rows[0]['answer']}</answer>"]) == [1.0]


def test_right_responses_earn_less() -> None:
    case = named(FAULTS, "order of the reference")
    at = next(at for at, row in enumerate(case.rows) if len(row["topics"]) > 1)
    topics = case.rows[at]["topics"]
    said = ["Topics: " + ", ".join(topics), "Topics: " + ", ".join(reversed(topics))]
    assert rewards_of(case, said, at) == [1.0, 0.0]
    case = named(FAULTS, "counts characters")
    long = "We go on. " * 120 + f"\\boxed{{{case.rows[0]['answer']}}}"
    assert rewards_of(case, [long]) == [0.0]
    case = named(FAULTS, "minus sign")
    negative = [at for at, row in enumerate(case.rows) if row["answer"].startswith("-")]
    assert 0.1 < len(negative) / len(case.rows) < 0.7
    assert rewards_of(case, [f"\\boxed{{{case.rows[negative[0]]['answer']}}}"], negative[0]) == [0]
    case = named(FAULTS, "float refuses")
    assert rewards_of(case, [f"<answer>{case.rows[2]['answer']}</answer>"], 2) == [0.0]
    case = named(FAULTS, "word of refusals")
    assert rewards_of(case, ["<answer>unknown</answer>"], 3) == [-1.0]


def test_rows_and_prompts_are_wrong(tmp_path: Path) -> None:
    case = named(FAULTS, "argument that the tool")
    assert "temperature" in case.rows[1]["call"] or "song" in case.rows[1]["call"]
    assert json.loads(named(FAULTS, "written as JSON").rows[0]["city"])
    assert "." not in named(FAULTS, "lost their decimals").rows[0]["answer"]
    assert sum("Hint: None" in str(row) for row in named(FAULTS, "None as its").rows) == 60
    case = named(FAULTS, "superscripts")
    tokenizer = AutoTokenizer.from_pretrained(case.model.save(tmp_path))
    assert tokenizer.decode(tokenizer("5\u00b2").input_ids) == "52"
