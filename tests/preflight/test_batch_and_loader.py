"""Relations of rewards in several batches, and of rows before and after they are loaded."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.preflight.answers.answer_variants import response_variants, variant_of
from grpodoctor.preflight.inputs.run_length import amount, fewest_prompts, most_steps
from grpodoctor.preflight.texts.telling_words import best_rule
from tests.preflight.planted import nineteenth_rewards as w
from tests.preflight.planted import nineteenth_sets as s
from tests.preflight.planted import nineteenth_tables as t
from tests.preflight.planted.cases import Case, examine
from tests.preflight.planted.fourteenth_configs import trl
from tests.preflight.planted.models import CHATML
from tests.preflight.planted.nineteenth_examination import drawn_faults, nineteenth_healthy
from tests.preflight.planted.scored import named

FAULTS = {case.name: case for case in drawn_faults()}
SOUND = {case.name: case for case in nineteenth_healthy()}


def _alarms(case: Case, folder: Path, *codes: str) -> str:
    """What some checks say, all of them in one text."""
    examined = examine(case, folder, codes)
    return " ".join((*examined.alarms, examined.error))


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("smallest and largest", "REW103"),
        ("columns of the reward", "REW103"),
        ("order of the reference", "REW104"),
        ("own system message", "DAT131"),
        ("superscripts", "DAT132"),
        ("evaluation never", "OPT103"),
    ],
)
def test_misses_of_the_first_run_are_named(words: str, code: str, tmp_path: Path) -> None:
    assert examine(named(FAULTS, words), tmp_path, (code,)).is_named


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("sorted by length", ("REW103", "DAT131", "DAT133")),
        ("three scripts", ("DAT132", "DAT131")),
        ("topics in any order", ("DAT112", "DAT133", "REW104")),
        ("None and inf", ("DAT112", "REW104")),
        ("example in the prompts", ("DAT131", "REW104")),
    ],
)
def test_sound_sets_have_no_alarm(words: str, codes: tuple[str, ...], tmp_path: Path) -> None:
    assert _alarms(named(SOUND, words), tmp_path, *codes).strip() == ""


def test_columns_are_kept_unless_the_config_removes_them(tmp_path: Path) -> None:
    case = named(FAULTS, "columns of the reward")
    kept = replace(case, run_config=trl(remove_unused_columns="false"))
    assert "removes the columns" not in _alarms(kept, tmp_path / "kept", "REW103")
    alone = replace(
        case,
        reward="def length_reward(completions, **kwargs):\n"
        '    return [min(len(each[0]["content"]) / 100, 1.0) for each in completions]\n',
    )
    assert "removes the columns" not in _alarms(alone, tmp_path / "alone", "REW103")


@pytest.mark.parametrize(
    ("settings", "is_fault"),
    [
        ({"eval_steps": 50, "max_steps": 200}, False),
        ({"eval_strategy": "no", "eval_steps": 500, "max_steps": 200}, False),
        ({"eval_steps": 0.2, "max_steps": 200}, False),
        ({"eval_strategy": "epoch", "eval_steps": 500, "max_steps": 200}, False),
        ({"eval_steps": 500, "max_steps": -1, "num_train_epochs": 1}, True),
        ({"eval_steps": 500, "max_steps": -1, "num_train_epochs": 90}, False),
    ],
)
def test_evaluations_are_within_the_run(
    settings: dict[str, Any], is_fault: bool, tmp_path: Path
) -> None:
    config = trl(**{"eval_strategy": "steps", **settings})
    case = Case(name="", rows=s.letter_rows(60, 1), framework="trl", run_config=config)
    assert ("OPT103" in _alarms(case, tmp_path, "OPT103")) == is_fault


def test_most_steps_of_epochs() -> None:
    known = {"group_size": 8, "responses_per_process": 32, "epochs": 3}
    assert fewest_prompts(known) == 4
    assert most_steps(known, 100) == 75
    assert most_steps({"epochs": 3}, 100) == 0
    assert amount(True) == amount(float("nan")) == 0.0


def test_objects_get_the_keys_of_other_rows(tmp_path: Path) -> None:
    tables = zip(s.call_rows(80, 2), t.calls(80, 2), strict=True)
    rows = [{**row, "call": made["call"]} for row, made in tables]
    reward = w.CALL.replace("json.loads(gold)", "gold")
    case = Case(name="", rows=rows, reward=reward)
    assert "DAT133" in _alarms(case, tmp_path / "objects", "DAT133")
    text = Case(name="", rows=s.call_rows(80, 2), reward=w.CALL)
    assert _alarms(text, tmp_path / "text", "DAT133").strip() == ""
    typed = replace(case, suffix=".parquet")
    assert "DAT133" not in _alarms(typed, tmp_path / "typed", "DAT133")


def test_numbers_among_texts_cannot_be_loaded(tmp_path: Path) -> None:
    rows = s.weather_rows(60, 3)
    mixed = [
        {**row, "answer": int(row["answer"])} if at % 4 else row for at, row in enumerate(rows)
    ]
    assert "several types" in _alarms(Case(name="", rows=mixed), tmp_path / "a", "DAT133")
    assert _alarms(Case(name="", rows=rows), tmp_path / "b", "DAT133").strip() == ""


def test_system_messages_of_single_rows_contradict_nothing(tmp_path: Path) -> None:
    """The first row has another system message than most, and personas differ from row to row."""
    ask = "Think step by step."
    for others in (["You are helpful."] * 59, [f"You are teacher {at}." for at in range(59)]):
        systems = ["Reply with the letter only.", *others]
        rows = [
            {"prompt": t.chat(f"{row['text']} {ask}", system), "letter": row["letter"]}
            for row, system in zip(t.letters(60, 4), systems, strict=True)
        ]
        said = _alarms(Case(name="", rows=rows), tmp_path / str(len(set(others))), "DAT131")
        assert "DAT131" not in said


@pytest.mark.parametrize(
    ("system", "user", "is_fault"),
    [
        ("Reply with the letter only.", "Think step by step.", True),
        ("You reason carefully before you answer.", "Give only the answer, no explanation.", True),
        ("You are helpful.", "Think step by step, then give only the letter.", False),
        ("Reply with the letter only.", "Which town is it?", False),
        ("Think step by step. Then reply with the answer only.", "Explain your steps.", False),
    ],
)
def test_two_instructions_contradict_each_other(
    system: str, user: str, is_fault: bool, tmp_path: Path
) -> None:
    rows = [
        {"prompt": t.chat(f"{r['text']} {user}", system), "letter": r["letter"]}
        for r in t.letters(60, 4)
    ]
    assert ("DAT131" in _alarms(Case(name="", rows=rows), tmp_path, "DAT131")) == is_fault


@pytest.mark.parametrize(
    ("prompt", "answer", "changed"),
    [
        ("List the topics in any order.", "billing, praise", "Topics: praise, billing"),
        ("Name all topics that apply.", "billing, praise", "Topics: praise, billing"),
        ("List the topics by importance.", "billing, praise", None),
        ("Solve it.", "2, 3", "Topics: 3, 2"),
        ("List the roots in ascending order.", "2, 3", None),
        ("List the topics in any order.", "billing", None),
    ],
)
def test_lists_in_another_order(prompt: str, answer: str, changed: str | None) -> None:
    form = "Topics: {answer}"
    variant = response_variants(form)["another order"]
    assert variant_of(variant, form, answer, prompt) == changed


def test_byte_level_tokens_keep_all_characters(tmp_path: Path) -> None:
    ask = "Wie hei\u00dft x\u00b2 \u2013 \u201eso\u201c?"
    rows = [{"prompt": t.chat(row["text"], ask)} for row in t.powers(60, 5)]
    case = Case(name="", rows=rows, model=CHATML)
    assert _alarms(case, tmp_path, "DAT132").strip() == ""


@pytest.mark.parametrize(("added", "least", "most"), [(40, 0.9, 1.0), (0, 0.0, 0.7)])
def test_the_length_of_a_prompt_tells_the_answer(added: int, least: float, most: float) -> None:
    rng = random.Random(6)
    answers = [rng.choice(("yes", "no")) for _ in range(200)]
    prompts = [
        "".join(rng.choices("abcdefgh", k=rng.randint(60, 90) + added * (answer == "yes")))
        for answer in answers
    ]
    rule = best_rule(prompts, answers, only_ids=False)
    assert rule is not None
    assert least <= rule.rate <= most
    assert not added or rule.description == "the length of the prompt"
