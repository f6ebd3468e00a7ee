"""Checks of reward functions: planted faults are found, sound functions have no findings."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.errors import DataError
from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding, SkippedCheck
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.preflight.conftest import ROWS
from tests.samples import sampled
from tests.trainer.rewards.reward_sources import BOXED, SOUND_REWARDS

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]
Rewards = Callable[..., UserReward]
ContextFor = Callable[..., PreflightContext]

SOUND = (
    BOXED
    + """
def reward(completions, answer, **kwargs):
    return [float(read(text) == right) for text, right in zip(completions, answer)]
"""
)


@pytest.fixture
def context_for(dense_model: Path, context_of: Make, reward_of: Rewards) -> ContextFor:
    """Builds the context of a reward function from its source, on rows with answers."""
    rows = [
        PromptRow(row.location, row.prompt, answer=row.answer, columns={"answer": row.answer})
        for row in ROWS
    ]

    def build(source: str, rows: list[PromptRow] = rows, **more: Any) -> PreflightContext:
        return context_of(dense_model, rows, reward=reward_of(source), **more)

    return build


FIRST = SOUND.replace("found[-1] if len(found) == 1", "found[0] if found")
LAST = SOUND.replace(" if len(found) == 1", " if found")
LOUD = SOUND.replace("    return [", "    print('{', completions)\n    return [")


@pytest.mark.parametrize("source", sampled([*SOUND_REWARDS.values(), FIRST, LAST, LOUD], 3))
def test_sound_functions_have_no_findings(
    source: str, context_for: ContextFor, findings_of: Findings
) -> None:
    context = context_for(source)
    assert context.reference_answers
    assert "boxed" in context.reference_answers.format_name
    for code in ("REW101", "REW102", "REW103"):
        assert findings_of(code, context) == [], code


NOTHING = "def reward(completions, **kwargs):\n    return [0.0 for _ in completions]\n"


def test_a_parser_that_misses_every_answer_is_critical_if_the_format_is_known(
    context_for: ContextFor, findings_of: Findings
) -> None:
    (finding,) = findings_of("REW101", context_for(NOTHING, _asking("Put it in \\boxed{}.")))
    assert finding.severity == "critical"
    assert "None of 40 correct answers" in finding.summary
    assert finding.details[0].endswith("\\boxed")


def test_an_unknown_format_is_admitted(context_for: ContextFor, findings_of: Findings) -> None:
    (finding,) = findings_of("REW101", context_for(NOTHING))
    assert finding.severity == "warning"
    assert "format is unknown" in finding.summary
    assert "--gold-format 'Final: {answer}'" in finding.advice[0]


def _asking(request_text: str) -> list[PromptRow]:
    return [_row(at, f"{row.prompt} {request_text}", row.answer) for at, row in enumerate(ROWS)]


def _row(number: int, prompt: str, answer: str | None) -> PromptRow:
    return PromptRow(f"line {number}", prompt, answer=answer, columns={"answer": answer})


REQUESTED = {
    "End with a line 'Total = N'.": r"re.findall(r'^Total = (\d+)$', t, re.M)",
    "Put the sum in <sum> tags.": r"re.findall(r'<sum>\s*(\d+)\s*</sum>', t)",
    'Return {"why": "...", "sum": 0}.': r"""re.findall(r'"sum": "?(\d+)', t)""",
    "Explain first, then write the sum in parentheses.": r"re.findall(r'\((\d+)\)$', t)",
    "Think for at least 10 words in <think> tags, then <answer>.": r"""(
        re.findall(r'<answer>(\d+)</answer>', t) if len(t.split()) > 10 else [])""",
    "Write the sum as [[sum]].": r"re.findall(r'\[\[(\d+)\]\]', t)",
}


@pytest.mark.parametrize(("request_text", "parsed"), REQUESTED.items())
def test_the_format_that_prompts_ask_for_is_tried(
    request_text: str, parsed: str, context_for: ContextFor, findings_of: Findings
) -> None:
    source = (
        f"import re\ndef reward(completions, answer, **kwargs):\n"
        f"    return [float({parsed}[-1:] == [a]) for t, a in zip(completions, answer)]\n"
    )
    context = context_for(source, _asking(request_text))
    for code in ("REW101", "REW102", "REW106"):
        assert findings_of(code, context) == [], code


YES_OR_NO = r"""
import re
def reward(completions, answer, **kwargs):
    found = [re.findall(r"true|false|unknown", text.lower()) for text in completions]
    return [float(words[-1:] == [right]) for words, right in zip(found, answer)]
"""


@pytest.mark.parametrize(
    "listing", ["Answer true, false or unknown.", "Is this unknown, true or false?"]
)
def test_a_prompt_that_lists_all_answers_is_right_by_chance(
    listing: str, context_for: ContextFor, findings_of: Findings
) -> None:
    answers = random.Random(7).choices(["true", "false", "unknown"], k=60)
    rows = [_row(at, f"Tower {at} leans. {listing}", right) for at, right in enumerate(answers)]
    assert findings_of("REW102", context_for(YES_OR_NO, rows)) == []
    anywhere = YES_OR_NO.replace("words[-1:] == [right]", "right in words")
    found = findings_of("REW102", context_for(anywhere, rows))
    assert any(each.summary.startswith("copy of the prompt") for each in found)


LAST_WORD = """
def reward(completions, answer, **kwargs):
    return [float(text.split()[-1:] == [right]) for text, right in zip(completions, answer)]
"""


@pytest.mark.parametrize(
    ("question", "severity"),
    [
        ("A crate of {0} kg loses {1} kg. Which mass remains?", "warning"),
        ("The tank held {0} L; then {1} L were drawn off. Find what is left.", "warning"),
        ("Add {0} to {1}.", "info"),
        ("A crate of {0} kg loses {1} kg. Give the number without a unit.", "info"),
    ],
)
def test_a_lost_unit_counts_where_units_are_asked_for(
    question: str, severity: str, context_for: ContextFor, findings_of: Findings
) -> None:
    rows = [_row(at, question.format(at + 40, at), str(at)) for at in range(40)]
    (finding,) = findings_of("REW104", context_for(LAST_WORD, rows))
    assert (finding.severity, list(finding.figures)) == (severity, ["lost: a unit"])


def test_answers_that_the_parser_misses_are_named(
    context_for: ContextFor, findings_of: Findings
) -> None:
    missing = SOUND.replace("[^{}]+", "[1-3][0-9]")  # reads only 10 to 39
    (finding,) = findings_of("REW101", context_for(missing))
    assert finding.figures["share"] == pytest.approx(11 / 40)
    assert "line 39: 40" in finding.details


def test_only_the_users_own_format_is_tested(
    context_for: ContextFor, findings_of: Findings
) -> None:
    settings = RunSettings(gold_format="so it is {answer}")
    (finding,) = findings_of("REW101", context_for(SOUND, settings=settings))
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
def test_each_hackable_reward_is_found(
    kind: str, context_for: ContextFor, findings_of: Findings
) -> None:
    source = f"{BOXED}\ndef reward(completions, answer, **kwargs):\n    return {HOLES[kind]}\n"
    context = context_for(source, settings=RunSettings(gold_format="\\boxed{{answer}}"))
    if kind == "empty response":  # rewarded like a correct answer, which then looks unrewarded
        assert "(worth 1 in 40 rows)" in findings_of("REW101", context)[0].summary
    assert kind in [each.summary.partition(":")[0] for each in findings_of("REW102", context)]


def test_a_format_worth_more_than_the_answer_is_found(
    context_for: ContextFor, findings_of: Findings
) -> None:
    bonus = SOUND.replace("float(read(text) == right)", "('boxed' in text) + (read(text) == right)")
    assert findings_of("REW102", context_for(bonus)) == []
    large = bonus.replace("('boxed' in text)", "3 * ('boxed' in text)")
    summaries = [each.summary for each in findings_of("REW102", context_for(large))]
    assert "format without an answer: earns 75% of the correct answer's reward." in summaries


def test_the_format_bonus_alone_is_not_the_reward_of_an_answer(
    context_for: ContextFor, findings_of: Findings
) -> None:
    bonus = SOUND.replace("float(", "0.1 * ('boxed' in text) + float(")
    context = context_for(bonus)
    assert findings_of("REW101", context) == []
    missing = bonus.replace("[^{}]+", "[1-3][0-9]")  # reads only 10 to 39
    context = context_for(missing)
    (finding,) = findings_of("REW101", context)
    assert finding.figures["share"] == pytest.approx(11 / 40)
    assert context.reference_answers
    # The bonus alone is not a correct answer.
    assert context.reference_answers.threshold == pytest.approx(0.6)


def test_the_final_answer_of_a_solution_is_tested(
    context_for: ContextFor, findings_of: Findings
) -> None:
    whole = [f"{index} and one are\n#### {index + 1}" for index in range(10, 50)]
    rows = [
        PromptRow(f"line {at}", f"{at}+1=", answer=text, columns={"answer": text})
        for at, text in enumerate(whole)
    ]
    source = SOUND.replace("== right", "== right.split('#### ')[1]")
    context = context_for(source, rows)
    for code in ("REW101", "REW102", "REW103"):
        assert findings_of(code, context) == [], code


def test_a_reward_that_does_not_read_the_answer_is_one_finding(
    context_for: ContextFor, findings_of: Findings
) -> None:
    constant = "def reward(completions, **kwargs):\n    return [0.5 for _ in completions]\n"
    (finding,) = findings_of("REW102", context_for(constant))
    assert finding.severity == "critical"
    assert "does not depend on the answer" in finding.summary
    assert {"wrong answer: full reward", "empty response: full reward"} <= set(finding.details)


def test_a_function_that_hangs_is_not_called_again(
    dense_model: Path, context_of: Make, reward_of: Rewards, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    source = f"""
import time
def reward(completions, **kwargs):
    with open({str(calls)!r}, "a") as file:
        file.write("1")
    time.sleep(60)
"""
    context = context_of(dense_model, reward=reward_of(source, seconds=4.0))
    for code in ("REW101", "REW102", "REW103"):
        (check,) = (each for each in all_checks() if each.code == code)
        with suppress(DataError):
            (finding,) = check.examine(context)
            assert finding.severity == "critical"
            assert "is not called again" in finding.details[-1]
    assert len(calls.read_text()) == 2


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        ("text == 'The answer is 12.'", "fails on an ordinary sentence."),
        ("text in ('', 'The answer is 12.')", "an ordinary sentence and 1 of 9 unusual responses."),
        ("text != 'The answer is 12.'", "fails on 9 of 9 unusual responses."),
        ("True", "fails on every response"),
    ],
)
def test_an_ordinary_response_does_not_count_as_unusual(
    fails: str, words: str, context_for: ContextFor, findings_of: Findings
) -> None:
    source = (
        "def reward(completions, **kwargs):\n"
        f"    return [1 / (not {fails}) for text in completions]\n"
    )
    findings = findings_of("REW103", context_for(source, [ROWS[0]]))
    assert any(words in each.summary for each in findings)


def test_a_function_that_fails_on_odd_responses_is_critical(
    context_for: ContextFor, findings_of: Findings
) -> None:
    raising = "def reward(completions, **kwargs):\n    return [1 / len(t) for t in completions]\n"
    findings = findings_of("REW103", context_for(raising, [ROWS[0]]))
    assert findings[0].severity == "critical"
    assert any("ZeroDivisionError" in line for line in findings[0].details)


def test_a_reward_that_depends_on_the_order_is_found(
    context_for: ContextFor, findings_of: Findings
) -> None:
    noisy = (
        "import random\n"
        "def reward(completions, **kwargs):\n"
        "    return [random.random() if t else 0.0 for t in completions]\n"
    )
    findings = findings_of("REW103", context_for(noisy))
    assert any("in the opposite order" in each.summary for each in findings)


def test_a_reward_without_prompts_is_skipped(
    dense_model: Path, context_of: Make, reward_of: Rewards
) -> None:
    context = replace(context_of(dense_model, reward=reward_of(SOUND)), rows=())
    for code in ("REW101", "REW102", "REW103"):
        (check,) = (each for each in all_checks() if each.code == code)
        assert isinstance(check.examine(context), SkippedCheck), code
