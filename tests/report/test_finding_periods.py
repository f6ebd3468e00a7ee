"""A rule that fired several times: each card, line and summary names all its steps."""

from dataclasses import replace

from grpodoctor.monitor.diagnosis.costs import Cost
from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.diagnosis.problems import Problem, Symptom
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.report.run.finding_view import problem_card, symptom_card
from grpodoctor.report.run.phrases import finding_periods, summary_lines
from grpodoctor.report.view import Bullets
from grpodoctor.rules.base import Finding

FIRST = Finding("MIS002", "importance-ratio-not-one", "critical", 1, 7, active=False,
                summary="The ratio is not 1.", evidence=(), remedies=(), references=())  # fmt: skip
SECOND = replace(FIRST, onset_step=31, last_step=40)
OTHER = replace(FIRST, code="CLP001", name="high-clip-fraction", onset_step=2)


def _report(cause: Finding, *symptoms: Finding) -> Report:
    problem = Problem(
        cause,
        "wrong-old-logprobs",
        Cost(7),
        tuple(Symptom(each, ("wrong-old-logprobs",)) for each in symptoms),
    )
    run = RunFacts("run", "grpodoctor", 1, 50, 50)
    return Report(run, Diagnosis(problems=(problem,)))


def test_all_steps_of_a_rule_are_named() -> None:
    findings = (FIRST, SECOND, OTHER)
    assert finding_periods(FIRST, findings) == "steps 1 to 7, resolved; again steps 31 to 40"
    assert finding_periods(SECOND, findings) == "steps 31 to 40, resolved; earlier steps 1 to 7"
    assert finding_periods(OTHER, findings) == "steps 2 to 7, resolved"
    active = replace(SECOND, active=True)
    assert finding_periods(FIRST, (active, FIRST)) == "steps 1 to 7, resolved; again since step 31"
    assert finding_periods(active, (active, FIRST)) == "since step 31; earlier steps 1 to 7"


def test_many_periods_are_counted() -> None:
    spans = [(1, 1), (5, 7), (9, 9), (12, 13), (20, 22), (30, 30)]
    findings = [replace(FIRST, onset_step=first, last_step=last) for first, last in spans]
    assert finding_periods(findings[0], findings) == (
        "step 1, resolved; again steps 5 to 7, 9, 12 to 13, 20 to 22 and 1 more"
    )
    assert finding_periods(findings[2], findings[:3]) == (
        "step 9, resolved; earlier steps 1 and 5 to 7"
    )
    assert finding_periods(findings[1], findings[:2]) == "steps 5 to 7, resolved; earlier step 1"


def test_cards_and_summaries_name_all_steps_of_their_rule() -> None:
    report = _report(FIRST, SECOND, OTHER)
    (problem,) = report.diagnosis.problems
    assert problem_card(problem, report).note == finding_periods(FIRST, (FIRST, SECOND))
    assert symptom_card(problem.symptoms[0], problem, report).note.endswith("earlier steps 1 to 7")
    lines = summary_lines(report)
    assert [line for line in lines if "MIS002" in line] == [
        "critical MIS002 importance-ratio-not-one (steps 1 to 7, resolved; again steps 31 to 40): "
        "The ratio is not 1."
    ]


def test_another_period_of_the_cause_is_in_the_heading_only() -> None:
    report = _report(FIRST, SECOND, OTHER)
    (problem,) = report.diagnosis.problems
    full, brief = problem_card(problem, report), problem_card(problem, report, "short")
    assert full.note == "steps 1 to 7, resolved; again steps 31 to 40"
    for card in (full, brief):
        explained = str([each for each in card.body if isinstance(each, Bullets)])
        assert "CLP001" in explained
        assert "MIS002" not in explained
    again, other = (symptom_card(each, problem, report) for each in problem.symptoms)
    assert again.note == "steps 31 to 40, resolved; earlier steps 1 to 7"
    assert "explained by" not in str(again.body)
    assert "explained by MIS002" in str(other.body)


def test_symptoms_of_one_rule_are_told_apart_by_their_steps() -> None:
    again = replace(OTHER, onset_step=32, last_step=33)
    report = _report(FIRST, OTHER, again)
    (problem,) = report.diagnosis.problems
    body = problem_card(problem, report).body
    (explains,) = [each for each in body if isinstance(each, Bullets) and each.style == "explains"]
    assert [line[1] for line in explains.items] == [
        "high-clip-fraction, steps 2 to 7, resolved",
        "high-clip-fraction, steps 32 to 33, resolved",
    ]
