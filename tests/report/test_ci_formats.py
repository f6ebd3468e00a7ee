"""SARIF, JUnit and GitHub annotations of real reports, hostile text included."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from grpodoctor.monitor.replay import Origin, replay
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report import text
from grpodoctor.report.ci import github, junit, sarif
from grpodoctor.report.run.comparison_view import view_of_runs, worst_first
from grpodoctor.report.run.finding_view import first_steps
from grpodoctor.report.run.view import view_of
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.rules.entropy.entropy_explosion import EntropyExplosion
from grpodoctor.support.safe_text import plain
from tests.report.simulated import HOSTILE, record_run


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    sick = record_run(folder / "sick, 100%: \x1b[31mred", 60, sick_from=20, model=HOSTILE)
    well = record_run(folder / "well", 40)
    short = record_run(folder / "short", 5)
    return [replay(path).report for path in (well, short, sick)]


@pytest.fixture(scope="module")
def sick(reports):
    return reports[2]


def test_sarif_has_what_the_standard_requires(reports, sick):
    log = json.loads(json.dumps(sarif.to_json(reports)))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "grpodoctor"
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert len(run["results"]) == sum(len(report.findings) for report in reports)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9._~:/%-]+", uri)
        assert location["physicalLocation"]["region"]["startLine"] >= 1
    levels = {each["ruleId"]: each["level"] for each in run["results"]}
    severities = {each.code: each.severity for each in sick.findings}
    assert all((levels[code] == "error") == (severities[code] == "critical") for code in levels)
    assert [each["kind"] for each in run["properties"]["verdicts"]] == [
        "healthy",
        "too short",
        "sick",
    ]


def test_junit_counts_its_cases(reports, sick):
    root = ET.fromstring(junit.render(reports))  # noqa: S314 - our own document
    assert root.tag == "testsuites"
    suites = root.findall("testsuite")
    assert len(suites) == 3
    for suite in suites:
        cases = suite.findall("testcase")
        assert int(suite.get("tests")) == len(cases)
        for tag, count in (("failure", "failures"), ("skipped", "skipped"), ("error", "errors")):
            assert int(suite.get(count)) == sum(case.find(tag) is not None for case in cases)
        assert len({case.get("name") for case in cases}) == len(cases)
        # A rule about settings that the config does not contain has no case.
        by_metrics = [rule for rule in all_rules() if not rule.reads_config]
        assert len(by_metrics) + 1 <= len(cases) <= len(all_rules()) + 1
    failed = {
        case.get("name").split()[0]
        for case in suites[2].findall("testcase")
        if case.get("name") != "verdict" and case.find("failure") is not None
    }
    loud = {each.code for each in sick.findings if each.severity != "info"}
    over = {each.code for each in sick.findings if each not in sick.diagnosis.counted}
    assert failed == loud - over
    assert len(failed) > 5
    assert suites[0].get("failures") == "0"
    remedies = sick.findings[0].remedies
    failures = [each.text for each in suites[2].iter("failure") if each.get("type") != "sick"]
    assert any(f"remedy {remedies[0]}: " in each for each in failures)
    for each in failures:
        assert re.search(r"\nmore: grpodoctor rule [A-Z]{3}\d{3}$", each)


def test_the_verdict_is_stated_once_with_its_fix_in_each_format(reports, sick):
    line, fix = plain(sick.diagnosis.verdict.line), [each.commented for each in first_steps(sick)]
    assert fix

    root = ET.fromstring(junit.render(reports))  # noqa: S314 - our own document
    cases = [case for case in root.iter("testcase") if case.get("name") == "verdict"]
    outcomes = [[child.tag for child in case] for case in cases]
    assert outcomes == [[], [], ["failure"]]  # healthy, too short, sick
    (failure,) = cases[2]
    assert (failure.get("message"), failure.text) == (line, "\n".join([line, *fix]))

    verdict, *others = github.render([sick]).splitlines()
    assert verdict.startswith("::error ")
    assert verdict.endswith("%0A".join(["", *fix]).replace("\n", "%0A"))
    assert not any(fix[0] in each for each in others)

    (run,) = sarif.to_json(reports)["runs"]
    texts = [each["message"]["text"] for each in run["results"]]
    assert texts.count("\n".join([line, *fix])) == 1
    assert sum(fix[0] in each for each in texts) == 1


def test_a_sick_run_whose_fault_is_over_has_a_result_that_counts(sick):
    over = tuple(
        replace(each, cause=replace(each.cause, active=False), symptoms=())
        for each in sick.diagnosis.problems[:1]
    )
    report = replace(sick, diagnosis=replace(sick.diagnosis, problems=over))
    assert report.diagnosis.counted == ()
    (result,) = sarif.to_json([report])["runs"][0]["results"]
    assert result["level"] == {"critical": "error"}.get(over[0].cause.severity, "warning")


def test_github_commands_are_one_line_each_and_cannot_be_forged(reports):
    lines = github.render(reports).splitlines()
    for line in lines:
        match = re.fullmatch(
            r"::(error|warning|notice) file=([^,:]*),line=1,title=([^,:]*)::.+", line
        )
        assert match, line
        assert "%25" in match[2] or "sick" not in match[2]
    assert not any("\x1b" in line for line in lines)


def test_no_sentence_is_annotated_twice(sick):
    verdict, *findings = github.render([sick]).splitlines()
    cause = sick.findings[0]
    sentence = cause.summary.rstrip(".").replace("%", "%25").lower()
    assert sentence in verdict.lower()
    assert f"title=grpodoctor%3A sick%2C {cause.code} {cause.name}" in verdict
    assert not any(sentence in line.lower() for line in findings)
    titles = [line.split("title=")[1].split("::")[0] for line in [verdict, *findings]]
    for finding in sick.findings:
        name = f"{finding.code} {finding.name}"
        count = sum(each.code == finding.code for each in sick.findings)
        assert sum(title.count(name) for title in titles) == count


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A checkout with a recorded run, and with a folder that has one log."""
    root = tmp_path_factory.mktemp("repository")
    record_run(root / "outputs" / "run", 40)
    (root / "logs").mkdir()
    rows = [{"step": step, "reward": 0.1 + step / 400, "kl": 0.01} for step in range(1, 60)]
    (root / "logs" / "my.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.mark.parametrize(
    ("path", "log"),
    [
        ("outputs/run", "outputs/run/steps.jsonl"),
        ("logs", "logs/my.jsonl"),
        ("logs/my.jsonl", "logs/my.jsonl"),
    ],
)
def test_annotations_are_attached_to_the_log_in_the_repository(repository, path, log):
    report = replay(repository / path).report
    assert all(
        f" file={log},line=1," in line for line in github.render([report], repository).splitlines()
    )
    link = repository.parent / "link-to-repository"
    link.unlink(missing_ok=True)
    link.symlink_to(repository)
    assert f" file={log},line=1," in github.render([report], link)
    (run,) = sarif.to_json([report], repository)["runs"]
    places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
    assert {place["artifactLocation"]["uri"] for place in places} <= {log}
    elsewhere = github.render([report], repository / "other")
    assert f" file={repository / log},line=1," in elsewhere


def test_a_run_that_is_not_on_this_machine_has_no_file(repository):
    origin = Origin("s3://bucket/run")
    report = replay(repository / "outputs" / "run", origin=origin).report
    verdict = github.render([report], repository).splitlines()[0]
    assert "file=" not in verdict
    assert "::s3://bucket/run: " in verdict
    rows = Origin("logs/my.jsonl (seed=1)", is_copy=False)
    report = replay(repository / "logs" / "my.jsonl", origin=rows).report
    assert " file=logs/my.jsonl,line=1," in github.render([report], repository)


def test_an_unexamined_run_is_an_error_in_every_format(tmp_path):
    path = record_run(tmp_path / "run", 40)
    report = replay(path, select=["MOE"]).report
    assert report.diagnosis.verdict.kind == "not examined"
    assert github.render([report]).startswith("::error ")
    assert 'errors="1"' in junit.render([report])


def test_several_runs_are_one_line_each_worst_first(reports):
    assert [report.diagnosis.verdict.kind for report in worst_first(reports)] == [
        "sick",
        "too short",
        "healthy",
    ]
    for width in (80, 120):
        shown = text.render(view_of_runs(reports, []), width=width)
        lines = [line for line in shown.splitlines() if "grpodoctor check" not in line]  # to paste
        assert max(map(len, lines)) <= width
        rows = [line for line in shown.splitlines() if "/" in line and "grpodoctor" not in line]
        assert [row.split("  ")[0].strip() for row in rows] == ["sick", "too short", "healthy"]
    assert "1 sick · 1 too short · 1 healthy" in shown


def test_a_rule_that_raises_is_reported_and_does_not_count_as_run(tmp_path, monkeypatch):
    path = record_run(tmp_path / "run", 40)
    coverage = replay(path).report.diagnosis.coverage

    def fail(self, chart):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(EntropyExplosion, "examine", fail)
    report = replay(path).report
    assert report.diagnosis.coverage.ran == coverage.ran - 1
    shown = " ".join(text.render(view_of(ReportData(report))).split())
    assert report.diagnosis.coverage.failed == 1
    assert "rule ENT002 failed at 40 steps, first at step 0: ZeroDivisionError: planted" in shown
    assert report.to_json()["defects"][0]["code"] == "ENT002"
    assert 'type="defect"' in junit.render([report])
    (annotation,) = [line for line in github.render([report]).splitlines() if "ENT002" in line]
    assert annotation.startswith("::error ")
    assert "ZeroDivisionError: planted" in annotation
    (invocation,) = sarif.to_json([report])["runs"][0]["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert not invocation["executionSuccessful"]
    assert notification["associatedRule"] == {"id": "ENT002"}
    assert "ZeroDivisionError: planted" in notification["message"]["text"]
