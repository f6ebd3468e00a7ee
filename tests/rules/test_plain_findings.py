"""Findings in words: sentences have no names of metrics, and tables say what a number is."""

from __future__ import annotations

import re

import pytest

from grpodoctor.rules.base import Evidence
from grpodoctor.vocabulary.plain_names import PLAIN_NAMES
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, ramp, steps
from tests.rules.test_real_runs import DATA, recorded

_NAME = re.compile("|".join(map(re.escape, PLAIN_NAMES)))


@pytest.mark.parametrize("run", sorted(path.stem for path in DATA.glob("*.jsonl")))
def test_summaries_of_recorded_runs_name_no_metric(run: str) -> None:
    findings = recorded(run).engine.diagnosis().findings
    assert not [each.summary for each in findings if _NAME.search(each.summary)]


def test_a_summary_has_words_for_the_measure_that_fell() -> None:
    falling: dict[str, Curve] = {
        **healthy(1),
        "accuracy/heldout": every(5, noisy(ramp(0.8, 0.2, 60, begin=30), 0.02, 1)),
    }
    summary = Patient(steps(120, falling)).finding("REW003").summary
    assert summary.startswith("Held-out accuracy")


def test_evidence_has_the_median_that_summaries_state() -> None:
    truncated = noisy(0.6, 0.15, 3)
    curves = {**healthy(1), "length/truncated_rate": truncated}
    finding = Patient(steps(80, curves)).finding("LEN002")
    evidence = next(each for each in finding.evidence if each.metric == "length/truncated_rate")
    assert evidence.median is not None
    assert evidence.median != evidence.value
    assert f"{evidence.median:.0%}" in finding.summary


def test_a_setting_has_no_median() -> None:
    assert Evidence("loss.clip_high", 0, 0.2).median is None
