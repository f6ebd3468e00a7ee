"""Checks of reward functions: planted holes are found, sound functions have no findings."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import DataError
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.check_results import CheckFinding, SkippedCheck
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.rows import PromptRow
from grpodoctor.preflight.run_settings import RunSettings
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.preflight.conftest import ROWS
from tests.trainer.rewards.reward_sources import BOXED, SOUND_REWARDS

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]
Rewards = Callable[..., UserReward]

SOUND = (
    BOXED
    + """
def reward(completions, answer, **kwargs):
    return [float(read(text) == right) for text, right in zip(completions, answer)]
"""
)


@pytest.fixture
def rows() -> list[PromptRow]:
    return [
        PromptRow(row.location, row.prompt, answer=row.answer, columns={"answer": row.answer})
        for row in ROWS
    ]


FIRST = SOUND.replace("found[-1] if len(found) == 1", "found[0] if found")
LAST = SOUND.replace(" if len(found) == 1", " if found")
LOUD = SOUND.replace("    return [", "    print('{', completions)\n    return [")


@pytest.mark.parametrize("source", [*SOUND_REWARDS.values(), FIRST, LAST, LOUD])
def test_sound_functions_have_no_findings(
    source: str,
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    context = context_of(dense_model, rows, reward=reward_of(source))
    assert context.reference_answers
    assert "boxed" in context.reference_answers.format_name
    for code in ("REW101", "REW102", "REW103"):
        assert findings_of(code, context) == [], code


def test_a_parser_that_misses_every_answer_is_critical(
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    reward = reward_of(
        "def reward(completions, **kwargs):\n    return [0.0 for _ in completions]\n"
    )
    (finding,) = findings_of("REW101", context_of(dense_model, rows, reward=reward))
    assert finding.severity == "critical"
    assert "None of 40 correct answers" in finding.summary


def test_answers_that_the_parser_misses_are_named(
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    missing = SOUND.replace("[^{}]+", "[1-3][0-9]")  # reads 10 to 39 and no more
    (finding,) = findings_of("REW101", context_of(dense_model, rows, reward=reward_of(missing)))
    assert finding.figures["share"] == pytest.approx(11 / 40)
    assert "line 39: 40" in finding.details


def test_the_users_own_form_is_tried_alone(
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    settings = RunSettings(gold_format="so it is {answer}")
    (finding,) = findings_of(
        "REW101", context_of(dense_model, rows, reward=reward_of(SOUND), settings=settings)
    )
    assert "in any of 1 formats" in finding.summary


HOLES = {
    "wrong answer": "[float('boxed' in t and any(c.isdigit() for c in t)) for t in completions]",
    "empty response": "[1.0 if not t else float(read(t) == a) "
    "for t, a in zip(completions, answer)]",
    "format without an answer": "[float('boxed' in t) for t in completions]",
    "copy of the prompt": "[float(read(t) == a or t == p) for t, a, p in "
    "zip(completions, answer, kwargs['prompts'])]",
    "long wrong answer": "[float(read(t) == a) + len(t) / 100 "
    "for t, a in zip(completions, answer)]",
    "several answers at once": "[float(f'boxed{{{a}}}' in t) for t, a in zip(completions, answer)]",
}


@pytest.mark.parametrize("kind", HOLES)
def test_each_hole_is_found(
    kind: str,
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    source = f"{BOXED}\ndef reward(completions, answer, **kwargs):\n    return {HOLES[kind]}\n"
    reward = reward_of(source)
    context = context_of(
        dense_model, rows, reward=reward, settings=RunSettings(gold_format="\\boxed{{answer}}")
    )
    if (
        kind == "empty response"
    ):  # paid as much as the correct answer, so that the answer looks unpaid
        assert "(worth 1 in 40 rows)" in findings_of("REW101", context)[0].summary
    told = [each.summary.partition(":")[0] for each in findings_of("REW102", context)]
    assert kind in told


def test_a_form_that_is_worth_more_than_being_right_is_told(
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    bonus = SOUND.replace("float(read(text) == right)", "('boxed' in text) + (read(text) == right)")
    assert findings_of("REW102", context_of(dense_model, rows, reward=reward_of(bonus))) == []
    dear = bonus.replace("('boxed' in text)", "3 * ('boxed' in text)")
    told = findings_of("REW102", context_of(dense_model, rows, reward=reward_of(dear)))
    assert "format without an answer: earns 75% of the correct answer's reward." in [
        each.summary for each in told
    ]


def test_answers_that_earn_the_forms_bonus_alone_are_not_paid(
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    bonus = SOUND.replace("float(", "0.1 * ('boxed' in text) + float(")
    context = context_of(dense_model, rows, reward=reward_of(bonus))
    assert findings_of("REW101", context) == []
    missing = bonus.replace("[^{}]+", "[1-3][0-9]")  # reads 10 to 39 and no more
    context = context_of(dense_model, rows, reward=reward_of(missing))
    (finding,) = findings_of("REW101", context)
    assert finding.figures["share"] == pytest.approx(11 / 40)
    assert context.reference_answers
    assert context.reference_answers.threshold == pytest.approx(
        0.6
    )  # the bonus alone is not a correct answer


def test_solutions_are_tried_by_what_they_come_to(
    dense_model: Path, context_of: Make, findings_of: Findings, reward_of: Rewards
) -> None:
    whole = [f"{index} and one are\n#### {index + 1}" for index in range(10, 50)]
    rows = [
        PromptRow(f"line {at}", f"{at}+1=", answer=text, columns={"answer": text})
        for at, text in enumerate(whole)
    ]
    source = SOUND.replace("== right", "== right.split('#### ')[1]")
    context = context_of(dense_model, rows, reward=reward_of(source))
    for code in ("REW101", "REW102", "REW103"):
        assert findings_of(code, context) == [], code


def test_a_function_that_hangs_is_not_waited_for_again_and_again(
    dense_model: Path, context_of: Make, reward_of: Rewards
) -> None:
    reward = reward_of("import time\ndef reward(completions, **kwargs):\n    time.sleep(60)\n")
    reward._seconds = 1.0
    context = context_of(dense_model, reward=reward)
    began = time.monotonic()
    for code in ("REW101", "REW102", "REW103"):
        (check,) = (each for each in all_checks() if each.code == code)
        with suppress(DataError):
            (finding,) = check.examine(context)
            assert finding.severity == "critical"
            assert "is not called again" in finding.details[-1]
    assert time.monotonic() - began < 30  # and not a minute for each of what it is asked


def test_a_function_that_fails_on_odd_responses_is_critical(
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    raising = "def reward(completions, **kwargs):\n    return [1 / len(t) for t in completions]\n"
    findings = findings_of("REW103", context_of(dense_model, [ROWS[0]], reward=reward_of(raising)))
    assert findings[0].severity == "critical"
    assert any("ZeroDivisionError" in line for line in findings[0].details)


def test_a_reward_that_is_not_the_same_twice_is_told(
    dense_model: Path,
    rows: list[PromptRow],
    context_of: Make,
    findings_of: Findings,
    reward_of: Rewards,
) -> None:
    noisy = (
        "import random\n"
        "def reward(completions, **kwargs):\n"
        "    return [random.random() if t else 0.0 for t in completions]\n"
    )
    findings = findings_of("REW103", context_of(dense_model, rows, reward=reward_of(noisy)))
    assert any("in the opposite order" in each.summary for each in findings)


def test_a_reward_without_prompts_is_skipped(
    dense_model: Path, context_of: Make, reward_of: Rewards
) -> None:
    context = replace(context_of(dense_model, reward=reward_of(SOUND)), rows=())
    for code in ("REW101", "REW102", "REW103"):
        (check,) = (each for each in all_checks() if each.code == code)
        assert isinstance(check.examine(context), SkippedCheck), code
