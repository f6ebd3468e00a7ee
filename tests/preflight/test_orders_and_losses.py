"""Answers in another order, lost parts of answers and prompts, needs of config and reward."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from grpodoctor.preflight.answers.completions.needed_programs import (
    missing_modules,
    missing_programs,
)
from grpodoctor.preflight.answers.kinds.blank_forms import blank_forms
from grpodoctor.preflight.answers.kinds.exponents import with_exponent
from grpodoctor.preflight.answers.kinds.lost_parts import with_float_noise, without_number
from grpodoctor.preflight.answers.kinds.pointers import is_pointer
from grpodoctor.preflight.answers.reference_answers import score_reference_answers
from grpodoctor.preflight.answers.requested.asked_patterns import outside_pattern
from grpodoctor.preflight.checks.reward.unread_tests import unread_tests
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.texts.permuted_answers import displaced_words, permuted_numbers
from grpodoctor.preflight.texts.repeated_block import repeated_block
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.preflight.planted import eighteenth_rewards as e
from tests.preflight.planted import nineteenth_sets as s
from tests.preflight.planted import twentyfirst_rewards as w
from tests.preflight.planted import twentyfirst_tables as t
from tests.preflight.planted.cases import Case, examine
from tests.preflight.planted.eighteenth_sets import code_rows
from tests.preflight.planted.fourteenth_configs import trl
from tests.preflight.planted.scored import named
from tests.preflight.planted.twentyfirst_examination import drawn_faults

_ASKED = ({"role": "user", "content": "Write it."},)
FAULTS = {case.name: case for case in drawn_faults()}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("level of the problem", "DAT113"),
        ("before the options", "DAT113"),
        ("system messages is Chinese", "DAT114"),
        ("empties the list", "REW103"),
        ("joins the lines", "DAT119"),
        ("one blank of all", "DAT132"),
        ("prompt column is not", "DAT134"),
        ("capitals without accents", "DAT107"),
        ("answers of the first half", "DAT113"),
        ("other way round", "DAT127"),
        ("twelve-hour", "DAT126"),
        ("carriage return", "DAT117"),
        ("ends with a full stop", "DAT123"),
        ("became question marks", "DAT117"),
        ("decomposed", "DAT117"),
        ("interpreter of the sandbox", "REW108"),
        ("names a reward function", "REW108"),
        ("special tokens", "REW109"),
        ("exclamation mark", "DAT104"),
        ("router's loss", "MOE101"),
        ("last step of the run", "OPT104"),
        ("another family", "OPT105"),
    ],
)
def test_a_fault_is_named_by_its_check(words: str, code: str, tmp_path: Path) -> None:
    case = named(FAULTS, words)
    examined = examine(case, tmp_path, (code,))
    assert examined.is_named, examined.alarms


def test_a_test_that_is_not_run_is_named(tmp_path: Path) -> None:
    source = e.CODE.replace('"\\n".join(asserts)', "asserts[0]")
    for number, text in enumerate((source, e.CODE)):
        file = tmp_path / f"rewards_{number}.py"
        file.write_text(text)
        rows = [
            PromptRow("", "Write it.", _ASKED, answer=row["solution"], columns=row)
            for row in code_rows(4, 11)
        ]
        columns = {name for row in rows for name in row.columns}
        reward = UserReward(f"{file}:tests_reward", seconds=60, columns=columns)
        try:
            answers = score_reference_answers(
                reward, rows, RunSettings(gold_format="```python\n{answer}\n```")
            )
            assert answers is not None
            assert len([*unread_tests(reward, answers)]) == 1 - number
        finally:
            reward.close()


def _numbers(seed: int) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    triples = [[rng.randint(10, 9000) for _ in range(3)] for _ in range(120)]
    prompts = [f"Add {a} and {b}, then take {c} away." for a, b, c in triples]
    return prompts, [str(a + b - c) for a, b, c in triples]


def test_numbers_in_any_other_order_are_found() -> None:
    prompts, answers = _numbers(1)
    shuffled = random.Random(2).sample(answers, len(answers))
    for other in (answers[::-1], answers[10:] + answers[:10], shuffled):
        assert len(permuted_numbers(prompts, other)) > 100
    assert not permuted_numbers(prompts, answers)
    assert not permuted_numbers(prompts, _numbers(3)[1])
    members = [(a, d, n) for a in range(1, 6) for d in range(2, 7) for n in range(3, 9)]
    asked = [f"Begin with {a}, add {d} each time. What is number {n}?" for a, d, n in members]
    assert not permuted_numbers(asked, [str(a * 1000 + d * (n - 1)) for a, d, n in members])


def test_names_are_found_in_their_order_only() -> None:
    rows = t.tagged_rows(t.posts(200, 5), "name", t.ASK_NAME)
    prompts = [row["prompt"][-1]["content"] for row in rows]
    names = [row["answer"] for row in rows]
    assert displaced_words(prompts, names[12:] + names[:12]) == "12 rows later"
    assert displaced_words(prompts, names[::-1]) == "in the reversed order"
    assert displaced_words(prompts, names) == ""
    assert displaced_words(prompts, [("yes", "no")[len(name) % 2] for name in names]) == ""


def test_repeated_answers_of_translations_are_sound() -> None:
    prompts, answers = _numbers(4)
    again = [prompt.replace("Add", "Addiere").replace("and", "und") for prompt in prompts]
    assert repeated_block([*prompts, *again], [*answers, *answers]) is None
    found = repeated_block([*prompts, *_numbers(6)[0]], [*answers, *answers])
    assert found
    assert (found.start, found.stop, found.lag) == (120, 240, 120)


@pytest.mark.parametrize("labels", [["yes", "no", "open"], list("aaabaacabaad")])
def test_labels_that_take_turns_are_no_repeated_block(labels: list[str]) -> None:
    answers = [*labels * 40, *labels[1:], *labels * 20]
    prompts = [f"Which one is {word}?" for word in map(_word, range(len(answers)))]
    assert repeated_block(prompts, answers) is None


def _word(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def test_lost_parts_of_answers() -> None:
    assert without_number(["3 kg", "4.5 kg", "12 kg"] * 10 + ["kg"] * 6) == list(range(30, 36))
    assert without_number(["3 kg", "none", "many"] * 10) == []
    assert without_number([r"2\pi", r"3\pi", "5x"] * 10 + [r"\pi", "x"] * 6) == []
    noisy = ["12.399999618530273", "0.10000000149011612"] * 3
    assert with_float_noise([*noisy, "3.14159265358979", "0.333333333333333"]) == list(range(6))
    prompts = ["Who is it? Ann or Bob."] * 40
    assert blank_forms(prompts, ["Ann", "Bob"] * 15 + ["\\boxed{}"] * 10) == list(range(30, 40))
    assert blank_forms(prompts, ["Ann", "Bob"] * 15 + ["EMPTY"] * 10) == list(range(30, 40))
    assert blank_forms(prompts, ["Ann", "Bob"] * 15 + ["unknown"] * 10) == []
    assert blank_forms(["Which sign?"] * 40, ["+", "-", "<", "ab"] * 10) == []


def test_forms_of_answers_that_prompts_do_not_ask_for() -> None:
    assert is_pointer("data/answers/0012.txt", "Who wrote it?")
    assert not is_pointer("src/app/main.py", "Which file has the bug?")
    assert not is_pointer("1/2", "What is the probability?")
    plain = ["How many?"] * 5
    assert with_exponent(plain, ["1.5e+07"] * 5) == dict.fromkeys(range(5), "15000000")
    assert with_exponent(["In scientific notation?"] * 5, ["1.5e+07"] * 5) == {}
    asked = ["Write HH:MM."] * 40
    outside = outside_pattern(asked, ["10:20"] * 30 + ["9:20"] * 10)
    assert outside
    assert len(outside.rows) == 10
    assert outside.padded[35] == "09:20"
    assert outside_pattern(asked, ["10:20"] * 40) is None


def test_needs_of_a_reward_file(tmp_path: Path) -> None:
    file = tmp_path / "rewards.py"
    file.write_text(
        "import subprocess, sys\n"
        "try:\n    import no_such_module_at_all\nexcept Exception:\n    pass\n"
        "try:\n    import another_missing_one\nexcept ImportError:\n    pass\n"
        "def score(completions):\n"
        "    subprocess.run(['no-such-program', '-c', 'x'])\n"
        "    subprocess.run([sys.executable, '-c', 'x'])\n"
    )
    assert missing_programs(f"{file}:score") == ["no-such-program"]
    assert missing_modules(f"{file}:score") == ["no_such_module_at_all"]


def test_prompts_of_any_length_that_end_within_a_sentence(tmp_path: Path) -> None:
    rows = []
    for at, row in enumerate(s.story_rows(120, 7)):
        text = row["prompt"][-1]["content"]
        cut = text[: len(text) * 2 // 3] if at % 6 == 2 else text
        rows.append({**row, "prompt": [{"role": "user", "content": cut}]})
    assert "DAT115" in str(examine(Case(name="", rows=rows), tmp_path / "a", ("DAT115",)).alarms)
    tours = t.tour_rows(120, 8)
    assert not examine(Case(name="", rows=tours), tmp_path / "b", ("DAT115",)).alarms


def test_a_stop_token_of_the_config_is_ordinary(tmp_path: Path) -> None:
    config = trl(generation_kwargs=json.dumps({"stop_token_ids": [13]}))
    case = Case(name="", rows=s.story_rows(40, 9), framework="trl", run_config=config)
    assert "stop_token_ids" in str(examine(case, tmp_path, ("DAT103",)).alarms)


@pytest.mark.slow
def test_wrong_answers_are_timed_as_well(tmp_path: Path) -> None:
    slow = w.NUMBER.replace("import re", "import re, time").replace(
        "            rewards.append(0.0)", "            time.sleep(0.05); rewards.append(0.0)"
    )
    rows = t.tagged_rows(t.mixtures(40, 10), "value")
    case = Case(name="", rows=rows, reward=slow)
    assert "REW105" in str(examine(case, tmp_path, ("REW105",)).alarms)
