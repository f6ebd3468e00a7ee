"""Holes are planted in reward functions; sound ones are told nothing of."""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import DataError
from grpodoctor.preflight.base import Remark, Skipped
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import Patient, Plan, Row
from grpodoctor.preflight.judge import UserJudge
from tests.preflight.conftest import ROWS

Make = Callable[..., Patient]
Remarks = Callable[[str, Patient], list[Remark]]
Judges = Callable[..., UserJudge]

BOXED = """
import re
def read(text):
    found = re.findall(r"\\\\boxed\\{([^{}]+)\\}", text)
    return found[-1] if len(found) == 1 else None
"""
SOUND = (
    BOXED
    + """
def reward(completions, answer, **kwargs):
    return [float(read(text) == right) for text, right in zip(completions, answer)]
"""
)
VERL = (
    BOXED
    + """
def reward(data_source, solution_str, ground_truth, extra_info=None):
    right = read(solution_str) == ground_truth
    return {"score": float(right), "acc": right}
"""
)
OWN = (
    BOXED
    + """
def reward(prompts, texts, answers):
    right = [read(text) == answer for text, answer in zip(texts, answers)]
    return {"task": [float(each) for each in right], "correct": right}
"""
)


@pytest.fixture
def rows() -> list[Row]:
    return [
        Row(row.place, row.prompt, answer=row.answer, columns={"answer": row.answer})
        for row in ROWS
    ]


BATCH = (
    BOXED
    + """
def reward(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(read(text) == right) for text, right in zip(solution_strs, ground_truths)]
"""
)
ASYNC = SOUND.replace("def reward", "async def reward")
FIRST = SOUND.replace("found[-1] if len(found) == 1", "found[0] if found")
LAST = SOUND.replace(" if len(found) == 1", " if found")
LOUD = SOUND.replace("    return [", "    print('{', completions)\n    return [")
DATACLASS = "import dataclasses\n@dataclasses.dataclass\nclass Kept:\n    x: 'int'\n" + SOUND


@pytest.mark.parametrize(
    ("source", "style"),
    [
        (SOUND, "trl"),
        (VERL, "verl"),
        (BATCH, "verl batch"),
        (OWN, "own"),
        (ASYNC, "trl"),
        (FIRST, "trl"),
        (LAST, "trl"),
        (LOUD, "trl"),
        ("from __future__ import annotations\n" + DATACLASS, "trl"),
    ],
)
def test_sound_functions_of_every_style_are_told_nothing_of(
    source: str,
    style: str,
    dense_model: Path,
    rows: list[Row],
    patient_of: Make,
    remarks_of: Remarks,
    judge_of: Judges,
) -> None:
    judge = judge_of(source)
    assert judge.style == style
    patient = patient_of(dense_model, rows, judge=judge)
    assert patient.gold
    assert "boxed" in patient.gold.name
    for code in ("REW101", "REW102", "REW103"):
        assert remarks_of(code, patient) == [], code


def test_a_parser_that_misses_every_answer_is_critical(
    dense_model: Path, rows: list[Row], patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    judge = judge_of("def reward(completions, **kwargs):\n    return [0.0 for _ in completions]\n")
    (remark,) = remarks_of("REW101", patient_of(dense_model, rows, judge=judge))
    assert remark.severity == "critical"
    assert "none of 40 right answers" in remark.summary


def test_answers_that_the_parser_misses_are_named(
    dense_model: Path, rows: list[Row], patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    missing = SOUND.replace("[^{}]+", "[1-3][0-9]")  # reads 10 to 39 and no more
    (remark,) = remarks_of("REW101", patient_of(dense_model, rows, judge=judge_of(missing)))
    assert remark.figures["share"] == pytest.approx(11 / 40)
    assert "line 39: 40" in remark.details


def test_the_users_own_form_is_tried_alone(
    dense_model: Path, rows: list[Row], patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    plan = Plan(gold_format="so it is {answer}")
    (remark,) = remarks_of(
        "REW101", patient_of(dense_model, rows, judge=judge_of(SOUND), plan=plan)
    )
    assert "in any of 1 forms" in remark.summary


HOLES = {
    "wrong": "[float('boxed' in t and any(c.isdigit() for c in t)) for t in completions]",
    "empty": "[1.0 if not t else float(read(t) == a) for t, a in zip(completions, answer)]",
    "form without an answer": "[float('boxed' in t) for t in completions]",
    "the prompt again": "[float(read(t) == a or t == p) for t, a, p in "
    "zip(completions, answer, kwargs['prompts'])]",
    "wrong at great length": "[float(read(t) == a) + len(t) / 100 "
    "for t, a in zip(completions, answer)]",
    "all answers at once": "[float(f'boxed{{{a}}}' in t) for t, a in zip(completions, answer)]",
}


@pytest.mark.parametrize("kind", HOLES)
def test_each_hole_is_found(
    kind: str,
    dense_model: Path,
    rows: list[Row],
    patient_of: Make,
    remarks_of: Remarks,
    judge_of: Judges,
) -> None:
    source = f"{BOXED}\ndef reward(completions, answer, **kwargs):\n    return {HOLES[kind]}\n"
    judge = judge_of(source)
    patient = patient_of(dense_model, rows, judge=judge, plan=Plan(gold_format="\\boxed{{answer}}"))
    if kind == "empty":  # paid as much as the right answer, so that the answer looks unpaid
        assert "(worth 1 in 40 rows)" in remarks_of("REW101", patient)[0].summary
    told = [each.summary.partition(":")[0] for each in remarks_of("REW102", patient)]
    assert kind in told


def test_a_form_that_is_worth_more_than_being_right_is_told(
    dense_model: Path, rows: list[Row], patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    bonus = SOUND.replace("float(read(text) == right)", "('boxed' in text) + (read(text) == right)")
    assert remarks_of("REW102", patient_of(dense_model, rows, judge=judge_of(bonus))) == []
    dear = bonus.replace("('boxed' in text)", "3 * ('boxed' in text)")
    told = remarks_of("REW102", patient_of(dense_model, rows, judge=judge_of(dear)))
    assert "form without an answer: worth 75% of what the right answer is paid" in [
        each.summary for each in told
    ]


def test_answers_that_earn_the_forms_bonus_alone_are_not_paid(
    dense_model: Path, rows: list[Row], patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    bonus = SOUND.replace("float(", "0.1 * ('boxed' in text) + float(")
    patient = patient_of(dense_model, rows, judge=judge_of(bonus))
    assert remarks_of("REW101", patient) == []
    missing = bonus.replace("[^{}]+", "[1-3][0-9]")  # reads 10 to 39 and no more
    patient = patient_of(dense_model, rows, judge=judge_of(missing))
    (remark,) = remarks_of("REW101", patient)
    assert remark.figures["share"] == pytest.approx(11 / 40)
    assert patient.gold
    assert patient.gold.threshold == pytest.approx(0.6)  # the bonus alone is not a right answer


def test_solutions_are_tried_by_what_they_come_to(
    dense_model: Path, patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    whole = [f"{index} and one are\n#### {index + 1}" for index in range(10, 50)]
    rows = [
        Row(f"line {at}", f"{at}+1=", answer=text, columns={"answer": text})
        for at, text in enumerate(whole)
    ]
    source = SOUND.replace("== right", "== right.split('#### ')[1]")
    patient = patient_of(dense_model, rows, judge=judge_of(source))
    for code in ("REW101", "REW102", "REW103"):
        assert remarks_of(code, patient) == [], code


def test_a_ground_truth_that_is_no_text_reaches_verls_functions(judge_of: Judges) -> None:
    columns = {"reward_model": {"ground_truth": {"target": 3}}, "extra_info": None}
    source = "def reward(data_source, solution_str, ground_truth, extra_info):\n    return "
    judge = judge_of(source + "ground_truth['target'] + len(extra_info)\n")
    (verdict,) = judge([Row("row 1", "?", columns=columns)], ["3"])
    assert verdict.reward == 3.0


def test_a_function_that_hangs_is_not_waited_for_again_and_again(
    dense_model: Path, patient_of: Make, judge_of: Judges
) -> None:
    judge = judge_of("import time\ndef reward(completions, **kwargs):\n    time.sleep(60)\n")
    judge._seconds = 1.0
    patient = patient_of(dense_model, judge=judge)
    began = time.monotonic()
    for code in ("REW101", "REW102", "REW103"):
        (check,) = (each for each in all_checks() if each.code == code)
        with suppress(DataError):
            (remark,) = check.examine(patient)
            assert remark.severity == "critical"
            assert "is not asked again" in remark.details[-1]
    assert time.monotonic() - began < 30  # and not a minute for each of what it is asked


def test_the_functions_process_ends_with_ours(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("def reward(completions, **kwargs):\n    return [1.0]\n")
    code = (
        "import os, sys\n"
        "from grpodoctor.preflight.judge import UserJudge\n"
        "if __name__ == '__main__':\n"
        f"    judge = UserJudge({str(tmp_path / 'rewards.py')!r} + ':reward')\n"
        "    print(next(iter(judge._pool._processes)), flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    program = tmp_path / "program.py"
    program.write_text(code)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    own = Path(f"/proc/{int(done.stdout)}")
    for _ in range(200):
        if not own.exists():
            break
        time.sleep(0.05)
    assert not own.exists()


def test_a_function_that_fails_on_odd_responses_is_critical(
    dense_model: Path, rows: list[Row], patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    raising = "def reward(completions, **kwargs):\n    return [1 / len(t) for t in completions]\n"
    remarks = remarks_of("REW103", patient_of(dense_model, [ROWS[0]], judge=judge_of(raising)))
    assert remarks[0].severity == "critical"
    assert any("ZeroDivisionError" in line for line in remarks[0].details)


def test_a_reward_that_is_not_the_same_twice_is_told(
    dense_model: Path, rows: list[Row], patient_of: Make, remarks_of: Remarks, judge_of: Judges
) -> None:
    noisy = (
        "import random\n"
        "def reward(completions, **kwargs):\n"
        "    return [random.random() if t else 0.0 for t in completions]\n"
    )
    remarks = remarks_of("REW103", patient_of(dense_model, rows, judge=judge_of(noisy)))
    assert any("in the opposite order" in each.summary for each in remarks)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import time; time.sleep(60)", "took longer than"),
        ("import os; os._exit(3)", "ended its process"),
        ("raise SystemExit(1)", "SystemExit"),
        ("return 'yes'", "returned str"),
        ("return [1.0]", "returned 1 values for 2 completions"),
        ("return [float('nan')] * len(completions)", "returned 'nan'"),
        ("return [None] * len(completions)", "returned 'None'"),
        ("return (float(len(t)) for t in completions)", "returned generator"),
        ("return [{'acc': 1}] * len(completions)", "a dict without score"),
        ("return [[1.0]] * len(completions)", "for completion 0"),
    ],
)
def test_whatever_it_does_the_error_is_one_line(body: str, told: str, judge_of: Judges) -> None:
    judge = judge_of(f"def reward(completions, **kwargs):\n    {body}\n")
    if "sleep" in body:
        judge._seconds = 1.0  # once it is loaded
    with pytest.raises(DataError, match=told) as caught:
        judge(ROWS[:2], ["1", "2"])
    assert "\n" not in str(caught.value)


def test_whatever_kind_of_number_it_returns_is_read(judge_of: Judges) -> None:
    source = (
        "import numpy as np\ndef reward(completions, **kwargs):\n"
        "    return [np.float32(1), True] if completions[0] else np.ones(2)\n"
    )
    judge = judge_of(source)
    for text in ("x", ""):
        assert [each.reward for each in judge(ROWS[:2], [text, text])] == [1.0, 1.0]


def test_a_function_that_wants_columns_is_told_how_it_is_called(judge_of: Judges) -> None:
    judge = judge_of("def reward(completions, level, **kwargs):\n    return level\n")
    with pytest.raises(DataError, match=r"'level' .*; it is called with prompts, completions and"):
        judge(ROWS[:1], ["1"])
    rows = [Row("line 1", "?", columns={"level": 2})]
    assert judge(rows, ["1"])[0].reward == 2.0


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("nothing", "names no reward function"),
        ("/none/there.py:reward", "cannot be imported"),
        ("json:nothing_like_it", "has no function"),
    ],
)
def test_a_function_that_is_not_there_is_refused(spec: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        UserJudge(spec)


def test_a_reward_without_prompts_is_skipped(
    dense_model: Path, patient_of: Make, judge_of: Judges
) -> None:
    patient = replace(patient_of(dense_model, judge=judge_of(SOUND)), rows=())
    for code in ("REW101", "REW102", "REW103"):
        (check,) = (each for each in all_checks() if each.code == code)
        assert isinstance(check.examine(patient), Skipped), code
