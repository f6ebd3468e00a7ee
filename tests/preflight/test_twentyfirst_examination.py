"""The sets of the twenty-first examination have their halves, and their plants are faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.preflight.planted.scored import named, reward_function, rewards_of
from tests.preflight.planted.twentyfirst_examination import (
    drawn_faults,
    first_half,
    second_half,
)

FAULTS = {case.name: case for case in drawn_faults()}


def test_the_halves_have_the_stated_sizes() -> None:
    assert len(first_half()) == len(second_half()) == 24
    assert len(FAULTS) == 48
    assert all(case.accepted for case in FAULTS.values())


@pytest.mark.parametrize(
    ("words", "at", "said", "reward"),
    [
        ("letters of the names", 0, "Answer: {answer}", None),
        ("5 in place of 5 percent", 0, "<answer>5{answer}</answer>", None),
        ("have capitals", 0, "Answer: {answer}", 0.0),
        ("prompt and response together", 0, "Answer: {answer}", None),
        ("no floor", 0, "<answer>0</answer>", None),
        ("no floor", 0, "I do not know", 0.0),
        ("keeps its placeholder", 0, "<answer>{answer}</answer>", 0.2),
        ("bounds of the clip", 0, "nonsense", 1.0),
        ("lexicon", 0, "Answer: {answer}", 1.0),
        ("carriage return", 0, "Answer: {answer}", 0.0),
        ("decomposed", 0, "<answer>crème brûlée</answer>", 0.0),
    ],
)
def test_rewards_are_wrong(words: str, at: int, said: str, reward: float | None) -> None:
    case = named(FAULTS, words)
    text = said.replace("{answer}", str(case.rows[at]["answer"]))
    (found,) = rewards_of(case, [text], at)
    if reward is None:
        assert found != 1.0 or "percent" in words
    else:
        assert found == reward


def test_rewards_of_other_calls_and_of_programs() -> None:
    case = named(FAULTS, "empties the list")
    gold = {"targets": list(case.rows[0]["reward_model"]["ground_truth"]["targets"])}
    score = reward_function(case)
    said = "Topics: " + ", ".join(gold["targets"])
    assert [score("mail", said, gold) for _ in range(2)] == [1.0, 0.0]
    case = named(FAULTS, "each fourth response")
    mood = case.rows[0]["answer"]
    assert rewards_of(case, [f"<answer>{mood}</answer>", "nothing"]) == [1.0, 1.0]
    case = named(FAULTS, "interpreter of the sandbox")
    program = f"```python\n{case.rows[0]['solution']}```"
    assert rewards_of(case, [program]) == [0.0]
    case = named(FAULTS, "first of the tests")
    name, _, value = case.rows[0]["tests"][0].removeprefix("assert ").partition(" == ")
    cheat = f"```python\ndef {name.split('(')[0]}(items):\n    return {value}\n```"
    assert rewards_of(case, [cheat]) == [1.0]


def test_tokenizers_lose_lines_and_tags(tmp_path: Path) -> None:
    folder = named(FAULTS, "one blank of all").model.save(tmp_path / "lines")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer("a\n\nb").input_ids) == "a b"
    folder = named(FAULTS, "special tokens").model.save(tmp_path / "tags")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    said = tokenizer("<answer>12</answer>").input_ids
    assert tokenizer.decode(said, skip_special_tokens=True) == "12"
