from __future__ import annotations

import math

import pytest

from grpodoctor.vocabulary.values import Max, Mean, Rate
from tests.rules.scenario import Curve, Patient, Point, healthy, steps
from tests.rules.scenario import altered as run

LOSS, GRADIENT = "optimizer/loss", "optimizer/grad_norm"
NOTHING = Mean.of([math.nan])
COMPONENT = "reward/component/code/mean"


def test_one_token_that_is_not_finite_is_named_with_its_step() -> None:
    def kl(step: int) -> Mean:
        return Mean.of([0.01] * 1000 + ([math.nan] if step >= 20 else []))

    finding = run({"kl/reference/k3": kl}).finding("OPT003")
    assert (finding.severity, finding.onset_step) == ("critical", 20)
    assert finding.evidence[0].metric == "kl/reference/k3"
    assert finding.evidence[0].value == 1


def test_the_gradient_is_named_before_what_it_ruins() -> None:
    broken = lambda _: Mean(Mean.of([0.01]).total, 1, nonfinite=1)  # noqa: E731 - a curve
    patient = run({"kl/reference/k3": broken, GRADIENT: broken, "reward/mean": 0.0})
    finding = patient.finding("OPT003")
    assert finding.summary.startswith("The gradient norm has")


def test_an_infinite_ratio_names_its_sequence() -> None:
    finding = run({"ratio/max": lambda _: Max(math.inf, "step-3/7")}).finding("OPT003")
    assert finding.evidence[0].where == "step-3/7"


def test_what_is_not_part_of_the_update_is_a_warning() -> None:
    odd = lambda _: Mean(Mean.of([0.01]).total, 1, nonfinite=2)  # noqa: E731 - a curve
    assert run({"mismatch/logprob_diff_mean": odd}).finding("OPT003").severity == "warning"


def test_an_overflow_that_was_skipped_is_a_warning() -> None:
    broken = lambda step: Rate(int(step == 20), 4)  # noqa: E731 - a curve
    skipped: dict[str, Curve] = {
        "optimizer/nonfinite": broken,
        "optimizer/skipped_rate": broken,
    }
    assert run(skipped).finding("OPT003").severity == "warning"
    applied: dict[str, Curve] = {"optimizer/nonfinite": broken, "optimizer/skipped_rate": 0}
    assert run(applied).finding("OPT003").severity == "critical"


def test_an_extreme_over_nothing_is_not_infinite() -> None:
    assert run({"ratio/max": lambda _: Max.of([])}).findings("OPT003") == []


@pytest.mark.parametrize(
    "name",
    [
        "accuracy/heldout",
        "reward/heldout/set/math",
        "pass_at_k/8",
        "accuracy/train",
        "length/correct",
        "length/incorrect",
        "entropy/correct",
        "tools/failure_rate",
        "mismatch/prob_diff_mean/position/0-15",
        COMPONENT,
        "reward/component/code/std",
    ],
)
def test_nan_where_a_batch_has_nothing_to_average_is_no_finding(name: str) -> None:
    def between(step: int) -> Point:
        return 0.3 if step % 5 == 4 else NOTHING

    assert run({name: between}).findings("OPT003") == []


@pytest.mark.parametrize("name", [LOSS, GRADIENT, "ratio/mean", "reward/mean", "entropy/mean"])
def test_nan_in_a_metric_of_every_batch_counts_its_readings(name: str) -> None:
    finding = run({name: lambda step: NOTHING if step >= 40 else 0.5}).finding("OPT003")
    assert finding.onset_step == 40
    assert "is NaN or infinite in 20 of 60 readings." in finding.summary
    assert math.isnan(finding.evidence[0].value)
    assert finding.evidence[0].baseline == 0.5


def test_a_partly_broken_mean_of_a_task_is_a_finding() -> None:
    odd = lambda _: Mean(Mean.of([0.3]).total, 1, nonfinite=2)  # noqa: E731 - a curve
    assert run({COMPONENT: odd}).finding("OPT003").severity == "warning"


def test_a_component_that_makes_the_reward_nan_is_named_with_it() -> None:
    def broken(step: int) -> Point:
        return NOTHING if step == 30 else 0.3

    finding = run({COMPONENT: broken, "reward/mean": broken}).finding("OPT003")
    assert finding.severity == "critical"
    assert [each.metric for each in finding.evidence] == ["reward/mean", COMPONENT]
    assert f"and so is {COMPONENT}" in finding.summary.replace("component code", COMPONENT)
    assert finding.remedies[1] == "recheck-reward"


def test_a_component_that_is_always_nan_is_a_note() -> None:
    assert run({COMPONENT: lambda _: NOTHING}, count=19).findings("OPT003") == []
    finding = run({COMPONENT: lambda _: NOTHING}).finding("OPT003")
    assert (finding.severity, finding.remedies) == ("info", ("recheck-reward",))
    assert finding.summary.startswith("Component code is NaN in all 60 readings")


def test_a_run_whose_every_metric_becomes_nan_is_found_where_it_began() -> None:
    names = (LOSS, GRADIENT, "reward/mean")
    curves = dict.fromkeys(names, lambda step: NOTHING if step >= 40 else 0.5)
    finding = Patient(steps(60, curves)).finding("OPT003")
    assert (finding.severity, finding.onset_step) == ("critical", 40)


@pytest.mark.parametrize(("begin", "is_active"), [(30, True), (10, False)])
def test_a_script_that_logs_the_loss_alone_may_print_numbers_between_nan(
    begin: int, is_active: bool
) -> None:
    """Twenty numbers before the first NaN show that every batch has a loss."""
    curves: dict[str, Curve] = {LOSS: lambda step: NOTHING if step >= begin and step % 4 else 0.5}
    findings = Patient(steps(80, curves)).findings("OPT003")
    assert [finding.severity for finding in findings if finding.active] == ["critical"] * is_active


def test_the_rows_of_evaluations_and_empty_rows_of_a_table_are_not_broken() -> None:
    curves = {
        **dict.fromkeys((LOSS, GRADIENT, "reward/mean"), lambda step: NOTHING if step % 10 else 1),
        "accuracy/heldout": lambda step: 0.5 if step % 10 == 5 else NOTHING,
    }
    assert Patient(steps(100, curves)).findings("OPT003") == []


def test_readings_of_an_abandoned_branch_do_not_count() -> None:
    patient = run({LOSS: lambda step: NOTHING if step >= 40 else 0.5})
    for record in steps(21, {**healthy(1), LOSS: lambda _: NOTHING}, first=40):
        patient.observe(record)
    assert "in 21 of 61 readings" in patient.findings("OPT003")[-1].summary
