"""A preflight's report in every format: all of it, none of it hostile."""

import re
from dataclasses import replace

import pytest

from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.preflight.results.preflight_results import (
    PreflightFinding,
    PreflightResults,
    UnfinishedCheck,
)
from grpodoctor.report import html, markdown, text
from grpodoctor.report.preflight.view import view_of
from tests.report.simulated import HOSTILE

FINDING = CheckFinding(
    severity="critical",
    summary=f"3 of 64 prompts end in the middle of a word {HOSTILE}",
    advice=("Fix the template.", f"Read {HOSTILE}"),
    details=(f"prompt 7: {HOSTILE}",),
    figures={"prompts": 3.0},
)
FINISHED = PreflightResults(
    model=f"models/tiny {HOSTILE}",
    rows=64,
    findings=(PreflightFinding("DAT101", "chat-template", FINDING),),
    passed=("DAT102", "LEN101"),
    skipped=(
        UnfinishedCheck("MIS101", "engine-agreement", "it needs two engines", "give --learner"),
    ),
    failed=(UnfinishedCheck("REW101", "reward-crashes", f"the reward function died {HOSTILE}"),),
    seconds=12.3,
    sampled_rows=32,
    filtered_rows=10,
)
FORMATS = [text.render, markdown.render, html.render]


@pytest.mark.parametrize("render", FORMATS)
def test_every_format_shows_the_diagnosis_first_then_everything_else(render) -> None:
    shown = render(view_of(FINISHED))
    diagnosis = "1 critical · 2 checks passed · 1 skipped · 1 failed"
    parts = (
        *("DAT101", "Fix the template.", "prompt 7", "wrote 10 of 32 sampled prompts"),
        *("died", "MIS101 engine", "give", "learner"),
    )
    assert shown.index(diagnosis) < min(shown.index(part) for part in parts)


@pytest.mark.parametrize("render", FORMATS)
def test_hostile_text_does_not_act(render) -> None:
    shown = render(view_of(FINISHED))
    assert "loud" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)
    if render is not text.render:
        assert "<script>alert" not in shown
        assert "<img" not in shown


def test_the_json_document_keeps_its_keys() -> None:
    assert list(view_of(FINISHED).json()) == [
        *(
            "schema_version",
            "model",
            "rows",
            "asked",
            "reward",
            "findings",
            "passed",
            "skipped",
            "failed",
        ),
        *("filtered", "seconds"),
    ]


@pytest.mark.parametrize("width", [50, 72, 79, 80, 120])
def test_the_name_of_a_skipped_check_stays_on_one_line(width):
    skipped = (
        UnfinishedCheck("LEN102", "truncated-sampled-responses", "no response", "--sampler NAME"),
        UnfinishedCheck("REW103", "reward-of-reference-answers", "no reward function",
                        "--reward FILE.py:FUNCTION and --answer-column COLUMN"),
    )  # fmt: skip
    result = replace(FINISHED, model="m", findings=(), skipped=skipped, failed=())
    printed = text.render(view_of(result), width=width)
    for check in skipped:
        assert f"{check.code} {check.name}" in printed
    assert "FILE.py:FUNCTION" in printed, "a value to type is never broken"
    assert max(map(len, printed.splitlines())) <= width


def test_text_has_one_line_for_the_checks_that_one_input_enables() -> None:
    without_model = [
        UnfinishedCheck(f"DAT10{number}", "template", "no model was given", "pass --model DIR")
        for number in range(1, 5)
    ]
    other = UnfinishedCheck("DAT128", "held-out-differs", "no held-out prompts", "add --held-out")
    view = view_of(replace(FINISHED, skipped=(other, *without_model), failed=()))
    printed = text.render(view, width=120)
    assert "DAT101 and 3 more" in printed
    assert "DAT102" not in printed.partition("Skipped")[2]
    assert printed.index("DAT101 and 3 more") < printed.index("DAT128 held-out-differs")
    assert all(check.code in html.render(view) for check in without_model)
