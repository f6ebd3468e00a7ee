"""REW021: rewards that do not follow what the responses say."""

from __future__ import annotations

import pytest

from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

EQUAL, OTHER = "groups/equal_text_variance", "groups/other_text_variance"
CORRELATION, DISAGREEMENT = "reward/answer_correlation", "reward/answer_disagreement_rate"
FLAT: Curve = noisy(0.4, 0.05, 1)
RISING: Curve = noisy(ramp(0.2, 0.7, 60), 0.04, 1)


def run(curves: dict[str, Curve], reward: Curve = FLAT) -> Patient:
    return Patient(steps(80, {"reward/mean": reward, **curves}))


def test_identical_responses_that_differ_as_much_as_others_are_a_warning() -> None:
    curves: dict[str, Curve] = {EQUAL: noisy(0.2, 0.05, 2), OTHER: noisy(0.22, 0.05, 3)}
    finding = run(curves).finding("REW021")
    assert (finding.severity, finding.remedies) == ("warning", ("recheck-reward",))
    assert "of the variance of different ones" in finding.summary
    assert run(curves, RISING).finding("REW021").severity == "info"


@pytest.mark.parametrize(("equal", "severity"), [(0.0, None), (0.005, None), (0.06, "info")])
def test_a_sampled_judge_is_a_note_and_a_function_of_the_text_is_nothing(
    equal: float, severity: str | None
) -> None:
    found = run({EQUAL: equal, OTHER: noisy(0.22, 0.05, 3)}).findings("REW021")
    assert [each.severity for each in found] == ([severity] if severity else [])


def test_rewards_that_do_not_follow_the_reference_answers_are_a_warning() -> None:
    """The keys of the next row: some batches correlate by chance, in both directions."""
    curves: dict[str, Curve] = {CORRELATION: noisy(0.02, 0.2, 2, low=-1), DISAGREEMENT: 0.4}
    finding = run(curves).finding("REW021")
    assert finding.severity == "warning"
    assert "correlation is" in finding.summary
    assert run(curves, RISING).finding("REW021").severity == "info"
    inverted: dict[str, Curve] = {CORRELATION: noisy(-0.8, 0.1, 2, low=-1)}
    assert run(inverted).finding("REW021").severity == "warning"


def test_a_part_of_the_rewards_that_disagrees_is_a_note() -> None:
    """A tolerance that is too wide, a judge that times out on long responses."""
    curves: dict[str, Curve] = {CORRELATION: noisy(0.6, 0.1, 2), DISAGREEMENT: noisy(0.22, 0.03, 3)}
    finding = run(curves).finding("REW021")
    assert finding.severity == "info"
    assert finding.summary.startswith("22%")
    assert run({CORRELATION: 0.95, DISAGREEMENT: 0.03}).findings("REW021") == []


def test_few_batches_with_such_responses_are_not_enough() -> None:
    few: Curve = lambda step: 0.2 if step < 15 else None  # noqa: E731
    assert run({EQUAL: few, OTHER: few}).findings("REW021") == []
    assert run({CORRELATION: lambda step: 0.0 if step < 15 else None}).findings("REW021") == []


def test_it_explains_responses_that_stay_level() -> None:
    """Scores in the order of a sorted batch: the updates are not too small."""
    level: dict[str, Curve] = {
        "optimizer/grad_norm": noisy(0.5, 0.05, 4), "entropy/mean": noisy(0.5, 0.02, 5),
        "length/mean": noisy(9.0, 0.4, 6, low=1), EQUAL: 0.2, OTHER: 0.22,
    }  # fmt: skip
    patient = run(level)
    assert patient.finding("OPT005").severity == "warning"
    assert patient.finding("REW021").onset_step <= patient.finding("OPT005").onset_step
