"""A finding without evidence, or whose metrics and responses are missing."""

import math
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpodoctor.cli.watch_screen.page_content import finding_page
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.session import Session
from grpodoctor.report import html
from grpodoctor.report.run.view import view_of
from grpodoctor.rules.base import Evidence, Sighting
from grpodoctor.rules.catalogue import rule_of
from tests.app.page_script import drawn_until, page_test, text_of
from tests.report.simulated import KNOBS, record_run

NOWHERE = Evidence("mismatch/kl_k1/worst_sequence", 30, math.nan, None, "step-30/seq-999")
NO_EVIDENCE = "This finding has no evidence: its rule named no readings."
FROM_SETTINGS = "This finding rests on the settings of the run, not on readings."


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces the evidence of a rule."""

    def replace_evidence(code: str, *evidence: Evidence) -> None:
        rule = type(rule_of(code))
        examine: Callable[..., Any] = rule.examine

        def examined(self: Any, chart: Any) -> Any:
            result = examine(self, chart)
            is_sighting = isinstance(result, Sighting)
            return replace(result, evidence=evidence) if is_sighting else result

        monkeypatch.setattr(rule, "examine", examined)

    return replace_evidence


@pytest.fixture
def run(tmp_path: Path) -> Path:
    knobs = {**KNOBS, "old_logprobs": "sampler"}
    return record_run(tmp_path / "run", 60, sick_from=20, knobs=knobs)


def _key(run: Path, code: str) -> str:
    findings = replay(run).report.findings
    return next(f"{code}-{each.onset_step}" for each in findings if each.code == code)


def _page(run: Path, code: str) -> str:
    test = drawn_until(page_test("finding", run, finding=_key(run, code)), "What it sees")
    assert not test.exception
    assert not test.error
    text = text_of(test)
    assert "Remedies" in text
    return text


def test_the_page_of_a_finding_without_evidence_says_so(
    run: Path, seen: Callable[..., None]
) -> None:
    seen("REW002")
    text = _page(run, "REW002")
    assert NO_EVIDENCE in text
    assert "This finding names no metric, so no chart belongs to it." in text
    assert "This finding names no sequences." in text


def test_the_page_of_a_finding_names_metrics_and_responses_that_are_missing(
    run: Path, seen: Callable[..., None]
) -> None:
    seen("REW002", NOWHERE)
    text = _page(run, "REW002")
    assert f"no readings to draw of the metrics in the evidence: `{NOWHERE.metric}`" in text
    assert "The response is not on disk" in text


@pytest.mark.slow
def test_the_page_of_a_finding_about_settings_says_so(run: Path, seen: Callable[..., None]) -> None:
    assert "This finding rests on settings, which have no chart." in _page(run, "CFG030")
    seen("CFG030")
    assert FROM_SETTINGS in _page(run, "CFG030")


@pytest.mark.parametrize("evidence", [(), (NOWHERE,)])
def test_the_html_report_has_a_finding_without_evidence(
    run: Path, seen: Callable[..., None], evidence: tuple[Evidence, ...]
) -> None:
    seen("REW002", *evidence)
    source = html.render(view_of(replay(run))).replace("<wbr>", "")
    assert "reward-collapse" in source
    assert (NO_EVIDENCE in source) == (not evidence)
    assert "mismatch/kl_k1" in source or not evidence
    assert "plotly" in source.lower()


@pytest.mark.parametrize(("evidence", "expected"), [((), NO_EVIDENCE), ((NOWHERE,), "seq-999")])
def test_the_watch_page_has_a_finding_without_evidence(
    run: Path, seen: Callable[..., None], evidence: tuple[Evidence, ...], expected: str
) -> None:
    seen("REW002", *evidence)
    session = Session(run)
    session.read_all()
    snapshot = session.snapshot()
    finding = next(each for each in snapshot.findings if each.code == "REW002")
    console = Console(width=120, record=True, file=StringIO())
    console.print(*finding_page(finding)(snapshot))
    text = console.export_text()
    assert expected in text
    assert "Thresholds:" in text
