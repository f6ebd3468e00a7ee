"""The report that `check` prints by default: one screen, with a step to type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpodoctor.monitor.advice import advice_for, with_alternatives
from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.coverage import Coverage, EnablingSetting
from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom
from grpodoctor.monitor.diagnosis.verdict import Verdict
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.monitor.vitals import Vital
from grpodoctor.report import html, markdown, text
from grpodoctor.report.run.finding_view import first_steps
from grpodoctor.report.run.view import view_of
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.rules.catalogue import all_rules, rule_of
from grpodoctor.vocabulary.knobs import Setting

SCREEN = 40
RULES = [rule for rule in all_rules() if rule.remedies]
SUMMARY = (
    "One sentence of at most twenty words with its number, 42 %, in the middle, as rules write."
)
SETTINGS = tuple(
    EnablingSetting(
        f"set actor_rollout_ref.rollout.a_rather_long_setting_{n}=True", ("ENT001",) * 9
    )
    for n in range(9)
)


def finding(code: str, onset: int = 40) -> Finding:
    rule = rule_of(code)
    evidence = tuple(Evidence(f"mismatch/prob_diff_mean/{n}", 90, 0.5, 0.1) for n in range(6))
    return Finding(
        code, rule.name, "critical", onset, 90, True, SUMMARY, evidence, rule.remedies, ()
    )


def problem(code: str, symptoms: int) -> Problem:
    explained = [Symptom(finding(rule.code), ("truncation", "zero-gradient")) for rule in RULES]
    return Problem(
        finding(code), "truncation", Cost(50), tuple(explained[:symptoms]), f"{SUMMARY} {SUMMARY}"
    )


def report_of(codes: list[str], symptoms: int = 5, framework: str = "trl") -> Report:
    problems = tuple(problem(code, symptoms) for code in codes)
    remedies = {each for one in problems for f in one.findings for each in f.remedies}
    advice = {
        each: advice_for(each, {}, framework, {}, "Qwen/Qwen3-4B")
        for each in with_alternatives(remedies)
    }
    verdict = Verdict("sick", " ".join([SUMMARY] * 3), since=40, code=codes[0], readings=50)
    coverage = Coverage(ran=30, rules=90, settings=SETTINGS)
    diagnosis = Diagnosis(verdict, problems, coverage)
    return Report(RunFacts("runs/one", framework, 0, 90, 91), diagnosis, advice)


def data_of(report: Report) -> ReportData:
    vital = Vital("held-out reward", "reward/heldout", (0.5,), 0.5, 0.25, "up")
    vitals = (vital,) * 8
    return ReportData(report, vitals)


MANY = [rule.code for rule in RULES if not rule.reads_config][:12]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("first", [rule.code for rule in RULES])
def test_a_report_of_many_findings_fits_on_one_screen(first: str, width: int) -> None:
    codes = [first, *(code for code in MANY if code != first)]
    rendered = text.render(view_of(data_of(report_of(codes))), width=width)
    assert rendered.count("\n") <= SCREEN
    assert rendered.startswith("SICK  since step 40: ")
    assert "Coverage: 60 of 90 rules could not run. 3 settings enable" in rendered
    assert f"CRITICAL  {first} {rule_of(first).name}" in rendered
    assert f"critical  {codes[1]} " in rendered.replace("CRITICAL", "critical")
    assert "(--verbose explains them)" in rendered


@pytest.mark.parametrize("second", [rule.code for rule in RULES])
def test_two_findings_have_a_card_each_on_one_screen(second: str) -> None:
    first = "LEN002" if second != "LEN002" else "ENT001"
    rendered = text.render(view_of(data_of(report_of([first, second], symptoms=1))), width=80)
    assert rendered.count("\n") <= SCREEN
    assert f"CRITICAL  {first} " in rendered
    assert f"CRITICAL  {second} " in rendered or f"critical  {second} " in rendered


def test_a_short_report_is_not_shortened() -> None:
    view = view_of(data_of(report_of(["LEN004"], symptoms=0)))
    whole = text.render(replace(view, shorter=lambda: None), width=120)
    assert whole.count("\n") <= SCREEN
    assert text.render(view, width=120) == whole


def test_everything_is_shown_if_asked_for() -> None:
    rendered = text.render(view_of(data_of(report_of(MANY)), verbose=True), width=80)
    assert rendered.count("\n") > 200
    assert all(f"{code} {rule_of(code).name}" in rendered for code in MANY)
    assert rendered.count("SICK  since step 40") == 2, "the verdict is repeated at the end"


@pytest.mark.parametrize("framework", ["trl", "verl", "prime-rl", "tinker-cookbook", "acme"])
@pytest.mark.parametrize("code", [rule.code for rule in RULES])
def test_a_sick_run_always_has_something_to_type(code: str, framework: str) -> None:
    steps = first_steps(report_of([code], framework=framework))
    assert steps
    assert all(step.text.strip() for step in steps)
    assert "the onset of the finding" not in steps[0].text


def test_the_first_remedy_without_settings_leaves_its_command() -> None:
    (command,) = first_steps(report_of(["GRP002"]))
    assert command.copyable
    assert command.text == (
        "grpodoctor preflight --model DIR --prompts FILE --reward FILE.py:FUNCTION"
    )
    (probe,) = first_steps(report_of(["KLD003"]))
    assert probe.text.startswith("grpodoctor probe --sampler transformers:Qwen/Qwen3-4B ")


def test_a_first_remedy_for_a_person_is_followed_by_the_settings_of_the_next() -> None:
    report = report_of(["OPT003"])
    assert [step.text for step in first_steps(report)] == [
        "Stop the run, and resume from the last checkpoint before step 40."
    ]
    codes = ("stop-training", "lower-learning-rate")
    cause = replace(report.diagnosis.problems[0].cause, remedies=codes)
    problems = (replace(report.diagnosis.problems[0], cause=cause),)
    logged = {"optimizer/learning_rate": 3e-6}
    advice = {each: advice_for(each, {}, "verl", logged) for each in codes}
    report = replace(report, diagnosis=replace(report.diagnosis, problems=problems), advice=advice)
    assert [step.text for step in first_steps(report)] == [
        "Then lower-learning-rate: Divide the learning rate by three.",
        "actor_rollout_ref.actor.optim.lr=1e-06",
    ]


@pytest.mark.parametrize(
    ("knobs", "has_config", "sentence"),
    [
        ({}, False, "The run's config was not found. If not set already:"),
        ({}, True, "The run's config does not contain this setting. If not set already:"),
        ({"temperature": 2.0}, True, "Already set:"),
    ],
)
def test_already_set_and_unknown_are_different_sentences(
    knobs: dict[str, Setting], has_config: bool, sentence: str
) -> None:
    report = report_of(["CFG022"])
    resolved = advice_for("raise-temperature", knobs, "trl", has_config=has_config)
    view = view_of(data_of(replace(report, advice={"raise-temperature": resolved})), verbose=True)
    rendered = text.render(view)
    assert sentence in rendered
    others = ("was not found", "does not contain", "Already set")
    assert sum(other in rendered for other in others) == 1


@pytest.mark.parametrize("render", [text.render, markdown.render, html.render])
def test_every_format_states_the_condition_of_a_remedy(render) -> None:
    def rendered(readings: dict[str, float]) -> str:
        report = report_of(["ENT001"])
        advice = {each: advice_for(each, {}, "trl", readings) for each in report.advice}
        page = render(view_of(data_of(replace(report, advice=advice))))
        return " ".join(page.split("<script>")[0].replace("\\", "").split())

    assert "to 0.28 if tokens are clipped at the upper bound (not logged)" in rendered({})
    assert "to 0.28 (the share clipped high is 1.2%)" in rendered({"clip/high_rate": 0.012})
    assert "clip-higher" not in rendered({"clip/high_rate": 0.0})


def test_a_resolved_problem_is_a_line_while_another_is_active() -> None:
    report = report_of(["LEN002", "REW002"], symptoms=0)
    first, second = report.diagnosis.problems
    over = replace(second, cause=second.cause.resolved())
    diagnosis = replace(report.diagnosis, problems=(first, over))
    rendered = text.render(view_of(data_of(replace(report, diagnosis=diagnosis))), width=120)
    assert "CRITICAL  LEN002 " in rendered
    assert "CRITICAL  REW002 " not in rendered
    assert "critical  REW002 reward-collapse, steps 40 to 90, resolved" in rendered
    alone = replace(report.diagnosis, problems=(over,))
    rendered = text.render(view_of(data_of(replace(report, diagnosis=alone))), width=120)
    assert "CRITICAL  REW002 " in rendered


def test_a_resolved_problem_has_no_remedy_to_apply() -> None:
    report = report_of(["LEN002"], symptoms=0)
    over = replace(report.diagnosis.problems[0], cause=finding("LEN002").resolved())
    diagnosis = replace(report.diagnosis, problems=(over,))
    data = data_of(replace(report, diagnosis=diagnosis))
    assert "CRITICAL  LEN002 " in text.render(view_of(data))
    assert "remed" not in text.render(view_of(data))
    assert "remedy: longer-limit" in text.render(view_of(data, verbose=True))


def test_the_page_to_read_is_that_of_a_finding_that_is_shown() -> None:
    report = report_of(["LEN002"], symptoms=0)
    note = replace(finding("LEN002").resolved(), severity="info")
    over = replace(report.diagnosis.problems[0], cause=note)
    diagnosis = replace(report.diagnosis, problems=(over,))
    assert "LEN002" not in text.render(view_of(data_of(replace(report, diagnosis=diagnosis))))
