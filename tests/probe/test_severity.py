"""Severity of a pair by its measurement, controls and causes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.probe.attribution.catalogue import all_causes
from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.controls.controls import (
    ORDINARY,
    not_made,
    weights_control,
    within_rounding,
)
from grpodoctor.probe.recommended_settings import recommendation
from grpodoctor.probe.results.results import Cell, Control, NamedCause
from grpodoctor.probe.severity import (
    EXACT,
    NUMERICAL_CAUSES,
    figure,
    is_rounding_cause,
    measured_verdict,
    severity_of,
    with_untried,
)
from grpodoctor.report.probe.phrases import standing
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
    assert verdict in measured_verdict(found)


@pytest.mark.parametrize("spoilt", [math.nan, -math.inf])
def test_one_nonfinite_token_is_critical(tmp_path: Path, spoilt: float) -> None:
    found = cell(tmp_path, 0.0, spoilt)
    assert severity_of(found) == "critical"
    assert found.comparison is not None
    told = measured_verdict(found)
    assert told.startswith(f"1 of {found.comparison.tokens:,} tokens lacks a finite")
    assert "(the first: prompt 0, sample 3, token 0). For the other tokens: The engines" in told


def test_no_finite_token_is_no_agreement(tmp_path: Path) -> None:
    silent = random_responses(8, 1)
    for each in silent:
        each.learner[:] = math.nan
    found = compare(*write(tmp_path, silent))
    silent_cell = replace(cell(tmp_path / "other", 0.0), comparison=found)
    assert "agree" not in measured_verdict(silent_cell)
    assert "No token has a finite" in measured_verdict(silent_cell)


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
    found = replace(cell(tmp_path, gap), causes=(named,), gap=gap**2, noise=EXACT)
    assert severity_of(found) == severity


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


HEALTHY = [(0.6, "info"), (1.0, "info"), (3.9, "info")]
"""Gaps of two kernels, in multiples of the measured noise: up to four are rounding."""


@pytest.mark.parametrize(("times", "severity"), [*HEALTHY, (4.1, "warning")])
@pytest.mark.parametrize("mean", [0.0057, 0.0117, 0.0191])
def test_a_numerical_cause_below_the_noise_is_no_fault(
    tmp_path: Path, mean: float, times: float, severity: str
) -> None:
    """Models with many layers in bfloat16: mean |Δp| above that of tiny healthy pairs."""
    kernel = NamedCause(
        cause="attention-kernel", title="Kernels", confidence="proven", explained=1.0, summary="x"
    )
    found = replace(cell(tmp_path, 1.92 * mean), gap=times * 5e-3, noise=5e-3)
    assert mean * 0.7 < figure(found.comparison, "mismatch/prob_diff_mean") < mean * 1.3
    assert severity_of(found) == ("none" if severity == "info" else severity)
    explained = replace(found, causes=(kernel,))
    assert severity_of(explained) == severity
    word, _ = standing(explained)
    assert word == ("agree" if severity == "info" else "differ")
    assert f"engines {word}" in measured_verdict(explained)
    assert is_rounding_cause(explained, kernel) == (severity == "info")


@pytest.mark.parametrize("cause", ["temperature", "truncation"])
def test_a_fault_below_the_noise_with_another_signature_is_a_warning(
    tmp_path: Path, cause: str
) -> None:
    named = NamedCause(cause=cause, title="x", confidence="proven", explained=0.6, summary="x")
    found = replace(cell(tmp_path, 0.005), gap=1e-3, noise=1e-3, causes=(named,))
    assert severity_of(found) == "warning"
    assert standing(found)[0] == "differ"


def test_a_possible_cause_of_a_gap_above_rounding_is_a_warning(tmp_path: Path) -> None:
    possible = NamedCause(
        cause="stale-weights", title="t", confidence="possible", explained=None, summary="s"
    )
    float32 = replace(cell(tmp_path, 0.0), gap=4e-3, noise=EXACT)
    few = [*random_responses(40, 1, gap=0.0)]
    few[0].learner[:] = few[0].learner - 0.2
    comparison = compare(*write(tmp_path / "few", few))
    assert figure(comparison, "mismatch/prob_diff_mean") < ORDINARY
    found = replace(float32, comparison=comparison, causes=(possible,))
    assert severity_of(found) == "warning"


@pytest.mark.parametrize(
    ("mean", "gap", "severity", "verdict"),
    [
        (0.006, 1e-3, "none", "agree up to usual rounding"),
        (0.001, 3e-3, "info", "may differ"),
        (0.01, 3e-3, "warning", "differ by more than usual rounding"),
        (0.06, 3e-3, "critical", "differ by more than usual rounding"),
    ],
)
def test_without_attribution_the_usual_noise_is_named(
    tmp_path: Path, mean: float, gap: float, severity: str, verdict: str
) -> None:
    found = replace(cell(tmp_path, 1.92 * mean), gap=gap, noise=5e-4, noise_is_usual=True)
    assert severity_of(found) == severity
    told = measured_verdict(found)
    assert verdict in told
    assert told.endswith("The rounding of this model was not measured.")


def test_large_rounding_is_named_but_is_no_fault(tmp_path: Path) -> None:
    found = replace(cell(tmp_path, 0.06), gap=0.02, noise=0.01)
    assert severity_of(found) == "info"
    assert standing(found)[0] == "agree"
    assert "may harm training" in measured_verdict(found)


def test_a_control_within_the_measured_rounding_passes() -> None:
    figures = {"prob_diff_mean": 0.0057, "kl_k3": 9e-4}
    failed = Control("self_scoring", "t", False, "It differs.", figures)
    passed = within_rounding(failed, 0.015)
    assert passed.passed
    assert "within the rounding measured in this model" in passed.summary
    assert within_rounding(failed, 1e-4) == failed
    assert within_rounding(replace(failed, figures={}), 1.0) == replace(failed, figures={})


def test_a_negligible_gap_above_rounding_is_info(tmp_path: Path) -> None:
    found = replace(cell(tmp_path, 0.0), gap=3e-8, noise=2e-9)
    assert severity_of(found) == "info", "one flipped expert of a float32 pair"


def test_a_setting_that_was_not_tried_is_no_agreement(tmp_path: Path) -> None:
    sound = cell(tmp_path, 0.0)
    assert severity_of(sound) == "none"
    assert sound.comparison is not None
    untried = ("no_repeat_ngram_size 3",)
    verdict = with_untried(measured_verdict(sound), untried)
    unsure = replace(sound, untried=untried, verdict=verdict)
    assert measured_verdict(replace(sound, untried=untried)) == verdict
    assert severity_of(unsure) == "warning"
    assert standing(unsure) == ("unsure", "warning")
    assert verdict.startswith("Unsure: no_repeat_ngram_size 3 was not tried")
    assert "Without it: The engines agree" in verdict
    assert "no_repeat_ngram_size 3" in recommendation(unsure)
    far = replace(cell(tmp_path / "far", 0.2), untried=untried)
    assert severity_of(far) == "critical"
    assert standing(far)[0] == "large gap"
