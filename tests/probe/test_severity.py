"""Severity of a pair by its measurement, controls and causes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.probe.attribution.catalogue import all_causes
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.controls.controls import not_made, weights_control
from grpodoctor.probe.results.results import Cell, NamedCause
from grpodoctor.probe.severity import NUMERICAL_CAUSES, measured_verdict, severity_of
from tests.probe.pairs import random_responses, write


def cell(folder: Path, gap: float, spoilt: float | None = None) -> Cell:
    responses = random_responses(40, 1, gap=gap)
    if spoilt is not None:
        responses[3].learner[0] = spoilt
    found = compare(*write(folder, responses))
    return Cell(sampler="a", learner="b", max_tokens=80, status="done", comparison=found)


@pytest.mark.parametrize(
    ("gap", "severity", "verdict"),
    [
        (0.0, "none", "bit-identical"),
        (0.002, "none", "no more than two healthy engines"),
        (0.015, "warning", "by more than two healthy engines"),
        (0.2, "critical", "by more than two healthy engines"),
    ],
)
def test_the_gap_alone(tmp_path: Path, gap: float, severity: str, verdict: str) -> None:
    found = cell(tmp_path, gap)
    assert severity_of(found) == severity
    assert found.comparison is not None
    assert verdict in measured_verdict(found.comparison)


@pytest.mark.parametrize("spoilt", [math.nan, -math.inf])
def test_one_nonfinite_token_is_critical(tmp_path: Path, spoilt: float) -> None:
    found = cell(tmp_path, 0.0, spoilt)
    assert severity_of(found) == "critical"
    assert found.comparison is not None
    told = measured_verdict(found.comparison)
    assert told.startswith(f"1 of {found.comparison.tokens:,} tokens lack a finite")
    assert "(the first: prompt 0, sample 3, token 0). For the other tokens: The engines" in told


def test_no_finite_token_is_no_agreement(tmp_path: Path) -> None:
    silent = random_responses(8, 1)
    for each in silent:
        each.learner[:] = math.nan
    found = compare(*write(tmp_path, silent))
    assert "agree" not in measured_verdict(found)
    assert "No token has a finite" in measured_verdict(found)


def test_controls_and_causes(tmp_path: Path) -> None:
    sound = cell(tmp_path, 0.002)
    assert severity_of(replace(sound, controls=(weights_control(["w"], 3),))) == "warning"
    assert severity_of(replace(sound, controls=(not_made("repeat", "no time"),))) == "none"
    cause = NamedCause(cause="x", title="x", confidence="possible", explained=None, summary="x")
    assert severity_of(replace(sound, causes=(cause,))) == "info"
    assert severity_of(replace(sound, causes=(replace(cause, confidence="likely"),))) == "warning"
    assert severity_of(Cell(sampler="a", learner="b", max_tokens=8, status="failed")) == "none"


@pytest.mark.parametrize(
    ("cause", "gap", "severity"),
    [
        ("batch-variance", 1e-4, "info"),  # a router's near tie falls otherwise in float32
        ("batch-variance", 0.002, "warning"),
        ("stale-weights", 1e-4, "warning"),
    ],
)
def test_a_cause_with_a_negligible_gap(
    tmp_path: Path, cause: str, gap: float, severity: str
) -> None:
    named = NamedCause(cause=cause, title="x", confidence="proven", explained=1.0, summary="x")
    assert severity_of(replace(cell(tmp_path, gap), causes=(named,))) == severity


def test_numerical_causes_exist() -> None:
    assert {each.id for each in all_causes()} > NUMERICAL_CAUSES


@pytest.mark.parametrize(
    ("gap", "noise", "severity"),
    [
        (4e-3, 2e-9, "warning"),  # a float32 pair whose gap is far above its rounding
        (4e-3, None, "none"),  # the pair's rounding is not known
        (4e-3, 1.5e-3, "none"),  # up to four times the rounding
    ],
)
def test_the_pairs_own_rounding_decides(
    tmp_path: Path, gap: float, noise: float | None, severity: str
) -> None:
    found = replace(cell(tmp_path, 0.002), gap=gap, noise=noise)
    assert severity_of(found) == severity
    possible = NamedCause(
        cause="precision", title="t", confidence="possible", explained=None, summary="s"
    )
    expected = "info" if severity == "none" else severity
    assert severity_of(replace(found, causes=(possible,))) == expected


def test_a_negligible_gap_above_rounding_is_info(tmp_path: Path) -> None:
    found = replace(cell(tmp_path, 0.0), gap=3e-8, noise=2e-9)
    assert severity_of(found) == "info", "one flipped expert of a float32 pair"
