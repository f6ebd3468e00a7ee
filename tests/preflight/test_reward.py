"""Holes are planted in reward functions; sound ones are told nothing of."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import DataError
from grpodoctor.preflight.base import Remark, Skipped
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.judge import UserJudge
from grpodoctor.preflight.patient import Patient, Plan, Row
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


@pytest.mark.parametrize(("source", "style"), [(SOUND, "trl"), (VERL, "verl"), (OWN, "own")])
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
        assert remarks_of("REW101", patient)
        return
    told = [each.summary.partition(":")[0] for each in remarks_of("REW102", patient)]
    assert kind in told


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
    ],
)
def test_whatever_it_does_the_error_is_one_line(body: str, told: str, judge_of: Judges) -> None:
    judge = judge_of(f"def reward(completions, **kwargs):\n    {body}\n", seconds=8.0)
    with pytest.raises(DataError, match=told) as caught:
        judge(ROWS[:2], ["1", "2"])
    assert "\n" not in str(caught.value)


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
