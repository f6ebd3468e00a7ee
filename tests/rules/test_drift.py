from __future__ import annotations

import pytest

from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, steps

KL = "kl/old_policy/k3"


def run(curves: dict[str, Curve], *, without: tuple[str, ...] = ()) -> Patient:
    every = {**healthy(1), **curves}
    return Patient(steps(40, {name: c for name, c in every.items() if name not in without}))


def test_a_policy_that_moves_far_on_each_batch_is_named_within_a_few_steps() -> None:
    """Sixteen updates at five times the learning rate without a clip: dead within ten steps."""
    finding = run({KL: noisy(0.12, 0.03, 1)}).finding("KLD001")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert finding.remedies == ("lower-learning-rate", "fewer-updates")


@pytest.mark.parametrize("level", [0.0002, 0.001, 0.01, 0.02])
def test_runs_that_learn_are_quiet(level: float) -> None:
    assert run({KL: noisy(level, level / 2, 2)}).findings("KLD001") == []


def test_a_single_spike_is_a_few_tokens() -> None:
    assert run({KL: lambda step: 0.9 if step == 20 else 0.002}).findings("KLD001") == []


def test_ratios_that_were_off_before_any_update_are_the_cause() -> None:
    curves: dict[str, Curve] = {KL: noisy(0.12, 0.02, 3), "mismatch/first_ratio_off": 0.7}
    finding = run(curves).finding("KLD001")
    assert "MIS002" in finding.summary
    assert finding.remedies[0] == "recompute-old-logprobs"


def test_absent_zero_and_not_applicable() -> None:
    skipped = {each.code for each in run({}, without=(KL,)).engine.diagnosis().skipped}
    assert "KLD001" in skipped
    assert run({KL: 0}).findings("KLD001") == []
    assert run({KL: NotApplicable("one update")}).why_not("KLD001") == "one update"
