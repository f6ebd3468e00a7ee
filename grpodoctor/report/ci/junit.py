"""Verdicts and rules as JUnit XML: one suite per run, one case for its verdict and one per rule.

The verdict of a sick run fails with its sentence and its fix. A rule with a finding of at least a
warning fails; a rule that could not run is skipped; a run that was not examined is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree as ET

from grpodoctor.monitor.advice import usable
from grpodoctor.monitor.diagnosis.problems import is_alarm
from grpodoctor.monitor.report import Report
from grpodoctor.report.ci.fix_lines import fix_lines
from grpodoctor.report.run.phrases import defect_line, finding_period
from grpodoctor.rules.base import Finding
from grpodoctor.rules.catalogue import rule_of
from grpodoctor.support.safe_text import plain

_COUNTED = ("failure", "error", "skipped")


def render(reports: Sequence[Report]) -> str:
    """The runs as an XML document."""
    suites = [_suite(report) for report in reports]
    root = ET.Element("testsuites", {"name": "grpodoctor", **_counts(suites)})
    root.extend(suites)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(report: Report) -> ET.Element:
    suite = ET.Element("testsuite", {"name": plain(report.run.path)})
    verdict = report.diagnosis.verdict
    properties = ET.SubElement(suite, "properties")
    for name, value in (("verdict", verdict.kind), ("framework", report.run.framework)):
        ET.SubElement(properties, "property", {"name": name, "value": plain(value)})
    case = _case(suite, "grpodoctor", "verdict")
    if verdict.kind == "not examined":
        _outcome(case, "error", "not-examined", verdict.line)
    elif verdict.kind == "sick":
        _outcome(case, "failure", "sick", verdict.line, *fix_lines(report))
    _add_rules(suite, report)
    ET.SubElement(suite, "system-out").text = plain(verdict.line)
    suite.attrib.update(_counts([suite]))
    return suite


def _add_rules(suite: ET.Element, report: Report) -> None:
    counted = set(map(id, report.diagnosis.counted))
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_code.setdefault(finding.code, []).append(finding)
    for code, findings in by_code.items():
        case = _rule_case(suite, code)
        faults = [each for each in findings if is_alarm(each) and id(each) in counted]
        if faults:
            texts = (*map(_text, faults), *_what_to_do(faults[0], report))
            _outcome(case, "failure", faults[0].severity, *texts)
        else:
            ET.SubElement(case, "system-out").text = "\n".join(map(_text, findings))
    for code in report.quiet:
        _rule_case(suite, code)
    for defect in report.defects:
        if defect.code not in by_code:
            _outcome(_rule_case(suite, defect.code), "error", "defect", defect_line(defect))
    for blocked in report.diagnosis.coverage.blocked:
        needs = f"needs {', '.join(blocked.missing)}: {blocked.how}"
        _outcome(_rule_case(suite, blocked.code), "skipped", "", needs)
    for rule in (*report.not_applicable, *report.diagnosis.coverage.omitted):
        _outcome(_rule_case(suite, rule.code), "skipped", "", f"not applicable: {rule.why}")


def _rule_case(suite: ET.Element, code: str) -> ET.Element:
    return _case(suite, f"grpodoctor.{code[:3]}", f"{code} {rule_of(code).name}")


def _case(suite: ET.Element, group: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": group, "name": name, "time": "0"})


def _outcome(case: ET.Element, tag: str, kind: str, *texts: str) -> None:
    outcome = ET.SubElement(case, tag, {"message": plain(texts[0])})
    if kind:
        outcome.set("type", kind)
        outcome.text = "\n".join(map(plain, texts))


def _text(finding: Finding) -> str:
    return plain(f"{finding.severity}, {finding_period(finding)}: {finding.summary}")


def _what_to_do(finding: Finding, report: Report) -> Iterator[str]:
    """The first remedy, its settings or its command, and the command for the rule's page."""
    for advice in usable(finding.remedies, report.advice)[:1]:
        yield f"remedy {advice.id}: {advice.conditional_title}"
        settings = [
            f"{each.line}  # {each.note}" if each.note else each.line for each in advice.settings
        ]
        yield from settings or filter(None, [advice.command])
    yield f"more: grpodoctor rule {finding.code}"


def _counts(suites: Iterable[ET.Element]) -> dict[str, str]:
    cases = [case for suite in suites for case in suite.iter("testcase")]
    counts = {
        f"{tag}s" if tag != "skipped" else tag: sum(case.find(tag) is not None for case in cases)
        for tag in _COUNTED
    }
    return {"tests": str(len(cases)), **{name: str(count) for name, count in counts.items()}}
