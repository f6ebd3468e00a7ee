"""Sound data that resembles the faults of orders, blank forms, solutions and needs of rewards."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from grpodoctor.preflight.answers.completions.needed_programs import (
    defined_names,
    missing_modules,
    missing_programs,
)
from grpodoctor.preflight.answers.kinds.blank_forms import blank_forms
from grpodoctor.preflight.answers.kinds.unsolved_answers import unsolved
from grpodoctor.preflight.answers.multiple_choice import without_options
from grpodoctor.preflight.checks.data.damaged_text import _has_lost_letters, is_decomposed
from grpodoctor.preflight.checks.data.truncated_prompts import cut_within_a_word
from grpodoctor.preflight.checks.model.adapter_targets import _modules
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.texts.label_noise import word_label_scores
from grpodoctor.preflight.texts.permuted_answers import displaced_words, permuted_numbers
from grpodoctor.preflight.texts.repeated_block import repeated_block
from tests.preflight.planted.cases import Case, examine

_WORDS = (
    "alpha", "bravo", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet", "kilo",
    "lima", "mike", "oscar", "papa",
)  # fmt: skip


def test_functions_on_all_numbers_of_a_range_are_not_permuted() -> None:
    inverses = [str(pow(number, -1, 101)) for number in range(1, 101)]
    prompts = [f"What is the inverse of {number} modulo 101?" for number in range(1, 101)]
    assert permuted_numbers(prompts, inverses) == []
    prompts = [f"Compute {number} XOR 1." for number in range(256)]
    assert permuted_numbers(prompts, [str(number ^ 1) for number in range(256)]) == []


def test_the_turns_of_dialogues_contain_earlier_answers() -> None:
    chance = random.Random(0)
    prompts, answers = [], []
    for number in range(6):
        history = f"Dialogue {number}:"
        for _ in range(20):
            prompts.append(f"{history} User: say {chance.choice(_WORDS)}.")
            answers.append(" ".join(chance.sample(_WORDS, 4)))
            history = f"{prompts[-1]} Bot: {answers[-1]}"
    assert displaced_words(prompts, answers) == ""


def test_paraphrases_and_classes_in_turns_are_no_repeated_block() -> None:
    places = [f"{one}{other}" for one in _WORDS[:8] for other in _WORDS[:6]]
    asked = ("What is the capital of {}?", "Where does the government of {} sit?", "{}: main city?")
    prompts = [form.format(place) for form in asked for place in places]
    assert repeated_block(prompts, [f"city of {place}" for _ in asked for place in places]) is None
    chance = random.Random(1)
    texts = [f"Which class has {' '.join(chance.sample(_WORDS, 5))}?" for _ in range(200)]
    assert repeated_block(texts, ["sports", "business", "science", "world"] * 50) is None


@pytest.mark.parametrize("blank", ["[]", "\u221e", "\u2205"])
def test_an_empty_list_or_a_symbol_is_an_answer(blank: str) -> None:
    answers = [blank if at % 10 == 0 else f"[{at}]" for at in range(200)]
    assert blank_forms([f"Input {at}" for at in range(200)], answers) == []


def test_an_empty_list_among_words_is_no_answer() -> None:
    answers = ["[]" if at % 10 == 0 else f"name {at}" for at in range(200)]
    assert len(blank_forms(["Who?"] * 200, answers)) == 20


@pytest.mark.parametrize("verdict", ["\u043d\u0435\u0442", "\u0646\u0639\u0645", "NO"])
def test_verdicts_among_words_of_the_prompt_are_answers(verdict: str) -> None:
    prompts = [f"Text {at} about {_WORDS[at % 14]}." for at in range(200)]
    answers = [verdict if at % 10 == 0 else _WORDS[at % 14] for at in range(200)]
    assert blank_forms(prompts, answers) == []
    answers = ["EMPTY" if at % 10 == 0 else _WORDS[at % 14] for at in range(200)]
    assert len(blank_forms(prompts, answers)) == 20


def _solved(answers: list[str], solutions: list[str], **columns: list[str]) -> list[PromptRow]:
    return [
        PromptRow(f"row {at}", f"Question {at}?", answer=answer,
                  columns={"solution": solution, **columns})
        for at, (answer, solution) in enumerate(zip(answers, solutions, strict=True))
    ]  # fmt: skip


def test_rounded_answers_and_numbers_of_options_are_not_unsolved() -> None:
    values = [(at + 0.5) / 7 for at in range(60)]
    solutions = [
        f"We get {at + 20.5} / {at + 31} = {value:.5f}." for at, value in enumerate(values)
    ]
    assert unsolved(_solved([f"{value:.2f}" for value in values], solutions))[0] == ""
    numbers = [str(at % 4) for at in range(60)]
    assert unsolved(_solved(numbers, solutions, options=["9", "8", "7", "6"]))[0] == ""
    assert unsolved(_solved([str(at + 500) for at in range(60)], solutions))[0] == "solution"


def test_composed_letters_and_puzzles_with_question_marks_are_not_damaged() -> None:
    assert not is_decomposed("\u0932\u095c\u0915\u093e")
    assert is_decomposed("cafe\u0301")
    assert not _has_lost_letters("Complete the missing letters: b?tt?r, pr?ctice.")
    assert _has_lost_letters("Le pr?sident a d?clar? que")


def test_long_words_take_linear_time() -> None:
    """A quadratic search of these texts takes minutes."""
    text = "?" + "a" * 300_000
    assert not _has_lost_letters(text)
    assert not any(cut_within_a_word([text + "b", text + "c d"]))


def test_a_reward_file_with_another_way_needs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    (tmp_path / "own_helpers.py").write_text("")
    file.write_text(
        "import subprocess\n"
        "try:\n    import no_such_fast_json as json\nexcept Exception:\n    import json\n"
        "try:\n    import no_such_module\nexcept Exception:\n    no_such_module = None\n"
        "try:\n    import own_helpers\nexcept Exception:\n    pass\n"
        "def score(completions):\n"
        "    subprocess.run('cd /tmp && ls', shell=True)\n"
        "    subprocess.run(['./relative-program'])\n"
        "    subprocess.run('MODE=1 ls', shell=True)\n"
    )
    assert missing_modules(f"{file}:score") == []
    assert missing_programs(f"{file}:score") == []
    file.write_text(
        "import shutil, subprocess\n"
        "def score(completions):\n"
        "    if shutil.which('no-such-program'):\n"
        "        subprocess.run(['no-such-program'])\n"
    )
    assert missing_programs(f"{file}:score") == []


def test_a_score_in_place_of_a_missing_module_hides_it(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "def score(text):\n"
        "    try:\n        import no_such_module\n        value = no_such_module.score(text)\n"
        "    except Exception:\n        value = 0.0\n    return value\n"
    )
    assert missing_modules(f"{file}:score") == ["no_such_module"]


def test_names_of_a_module_include_those_of_branches(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text("if True:\n    def score():\n        def inner():\n            pass\n")
    assert defined_names(f"{file}:score") == {"score"}
    file.write_text("from math import *\ndef score():\n    pass\n")
    assert defined_names(f"{file}:score") == frozenset()


def test_stems_of_options_are_not_cut(tmp_path: Path) -> None:
    chance = random.Random(2)
    rows = [
        {
            "prompt": f"The {' '.join(chance.sample(_WORDS, 9))} effect of number {at} "
            + ("is called the" if at % 4 == 0 else "has which name?"),
            "answer": "A",
            "choices": ["one", "two", "three", "four"],
        }
        for at in range(120)
    ]
    assert not examine(Case(name="", rows=rows), tmp_path / "a", ("DAT115",)).alarms
    plain = [{"prompt": row["prompt"], "answer": str(at)} for at, row in enumerate(rows)]
    assert examine(Case(name="", rows=plain), tmp_path / "b", ("DAT115",)).alarms


def test_label_scores_use_the_most_frequent_words() -> None:
    chance = random.Random(3)
    texts = [{("good", "bad")[at % 2], f"rare{chance.randrange(900)}"} for at in range(200)]
    target = np.array([at % 2 for at in range(200)])
    known = np.arange(200) < 100
    assert word_label_scores(texts, target, known, ~known) == 1.0
    assert word_label_scores(texts, 1 - target, known, known) == 1.0


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": []}', "no JSON"])
def test_an_index_of_weights_without_names_is_not_known(index: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert _layers(tmp_path) == frozenset()


def test_the_output_layer_is_a_layer_of_tied_models_too(tmp_path: Path) -> None:
    weights = {"weight_map": {"model.layers.0.self_attn.q_proj.weight": "a"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(weights))
    assert _layers(tmp_path) == {"q_proj", "lm_head"}


def _layers(folder: Path) -> frozenset[str]:
    return _modules(cast("PreflightContext", SimpleNamespace(model=folder, config={})))


@pytest.mark.parametrize(
    "options",
    [
        "\nA\u3001x\nB\u3001y",
        " A\uff0ex B\uff0ey",
        " <A> x </A> <B> y </B>",
        " A = x, B = y",
        "\n(A) x (B) y",
    ],
)
def test_options_in_any_layout_are_options(options: str) -> None:
    asked = "Answer with the letter of the option."
    rows = [PromptRow(f"row {at}", asked + options, answer="A") for at in range(40)]
    assert without_options(rows) == []
    assert len(without_options([replace(row, prompt=asked) for row in rows])) == 40
    parts = [{"type": "image"}, {"type": "text", "text": asked}]
    shown = [
        replace(row, prompt=asked, messages=({"role": "user", "content": parts},)) for row in rows
    ]
    assert without_options(shown) == []


def test_a_question_which_thing_has_no_number(tmp_path: Path) -> None:
    many = [{"prompt": f"How many apples are {at}?", "answer": f"{at} apples"} for at in range(60)]
    which = [{"prompt": f"Which are more than {at}?", "answer": "apples"} for at in range(8)]
    assert not examine(Case(name="", rows=[*many, *which]), tmp_path / "a", ("DAT112",)).alarms
    lost = [{**row, "prompt": f"How many apples are {at}?"} for at, row in enumerate(which, 60)]
    assert examine(Case(name="", rows=[*many, *lost]), tmp_path / "b", ("DAT112",)).alarms
