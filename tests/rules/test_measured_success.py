"""Measures of success that are broken, missing, or on another scale."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.rules.scenario import Curve, Patient, Point, noisy, ramp, steps

REWARD, BEST, ACCURACY, LENGTH = "reward/mean", "reward/max", "accuracy/train", "length/mean"
RISING = noisy(ramp(0.1, 0.4, 40), 0.02, 1)


def component(name: str) -> str:
    return f"reward/component/{name}/mean"


def run(curves: dict[str, Curve], count: int = 60) -> Patient:
    return Patient(steps(count, curves))


def test_an_accuracy_of_zero_does_not_count_where_some_responses_earn_a_full_mark() -> None:
    """A public run divided integers: success was 0 in 400 steps, and the best reward 2.1."""
    curves: dict[str, Curve] = {REWARD: RISING, ACCURACY: 0.0}
    assert run({**curves, BEST: 2.1}).findings("REW009") == []
    for best in (0.45, 0.9):  # partial credit
        assert run({**curves, BEST: best}).finding("REW009").severity == "warning"
    most = noisy(ramp(0.5, 1.0, 40), 0.02, 2)  # what most responses have learned
    assert run({**curves, REWARD: most, BEST: 1.1}).finding("REW009").severity == "warning"


def test_entropy_that_rises_is_judged_by_the_reward_then() -> None:
    curves: dict[str, Curve] = {REWARD: RISING, ACCURACY: 0.0, "entropy/mean": ramp(0.2, 1.3, 40)}
    alarms = [each.severity for each in run({**curves, BEST: 2.1}).findings("ENT002")]
    assert "warning" not in alarms


def test_components_that_only_correct_responses_earn_are_a_measure_of_success() -> None:
    """A public run: formats from .3 to 3.1 of 3.7, and correctness 0 in 130 steps."""
    curves: dict[str, Curve] = {
        REWARD: RISING,
        component("brevity_reward"): RISING,
        component("correctness_reward"): 0.0,
    }
    finding = run(curves).finding("REW009")
    assert finding.severity == "warning"
    assert "correctness_reward" in finding.summary
    once = noisy(ramp(0.0, 0.2, 60), 0.01, 3)
    assert run({**curves, component("exact_match"): once}).findings("REW009") == []
    form_alone = {
        **curves,
        component("correctness_reward"): RISING,
        component("strict_format"): 0.0,
    }
    assert run(form_alone).findings("REW009") == []
    assert run(curves, 20).findings("REW009") == []


def test_shorter_responses_with_a_slow_noisy_rise_are_a_note() -> None:
    """A public run: 916 to 62 tokens, and a reward from .17 to .25 with noise of .09."""
    reward = noisy(ramp(0.17, 0.26, 250), 0.09, 5)
    curves: dict[str, Curve] = {LENGTH: noisy(ramp(900, 40, 120), 20, 4, low=20.0)}
    found = run({**curves, REWARD: reward}, 250).findings("LEN005")
    assert [each.severity for each in found if each.active] == ["info"]
    flat = run({**curves, REWARD: noisy(0.17, 0.09, 5)}, 250).findings("LEN005")
    assert any(each.severity == "warning" for each in flat)


def _tens(curve: Curve) -> Callable[[int], Point]:
    def at(step: int) -> Point:
        point = curve(step) if callable(curve) else curve
        return 10 * point if isinstance(point, float | int) else point

    return at


@pytest.mark.parametrize(("heldout", "severity"), [(1.5, "warning"), (9.4, "info")])
def test_rewards_of_ten_are_compared_as_shares(heldout: float, severity: str) -> None:
    """Trainers that pay 10 for a correct answer evaluate in the same unit."""
    accuracy = noisy(0.97, 0.01, 6)
    curves: dict[str, Curve] = {
        ACCURACY: accuracy,
        REWARD: _tens(accuracy),
        "reward/heldout": lambda step: ramp(9.5, heldout, 40)(step) if step % 5 == 0 else None,
        "groups/all_correct_rate": 0.85,
        "groups/all_incorrect_rate": 0.0,
        "groups/zero_variance_rate": 0.85,
    }
    assert run(curves).finding("GRP001").severity == severity


def test_a_steady_share_of_truncated_responses_is_no_alarm_while_the_reward_rises() -> None:
    for share in (0.1, 0.15, 0.2):
        curves: dict[str, Curve] = {
            REWARD: RISING,
            "length/truncated_rate": noisy(share, 0.02, 7),
            LENGTH: noisy(400, 10, 8),
        }
        found = run(curves, 120).findings("LEN002")
        assert all(each.severity == "info" for each in found)
