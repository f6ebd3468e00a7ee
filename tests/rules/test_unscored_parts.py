"""REW017: a mean reward that is no weighted sum of the means of its parts."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

ACCURACY = "reward/component/accuracy_reward/mean"
BREVITY = "reward/component/brevity_reward/mean"
FALLING, RISING = noisy(ramp(0.5, 0.2, 70), 0.08, 1), noisy(ramp(0.3, 0.7, 70), 0.08, 1)
SHORTER: Curve = noisy(ramp(0.4, 0.9, 70), 0.03, 2)


def run(
    accuracy: Callable[[int], float], scored: Callable[[int], float], framework: str = "trl"
) -> Patient:
    """Accuracy with a weight of 2, known for a share of the responses, and brevity."""

    def reward(step: int) -> float:
        return 2 * scored(step) * accuracy(step) + SHORTER(step)

    def logged(step: int) -> float | None:
        return accuracy(step) if scored(step) else None

    curves: dict[str, Curve] = {"reward/mean": reward, ACCURACY: logged, BREVITY: SHORTER}
    return Patient(steps(80, curves), framework=framework)


def of_few_groups(step: int) -> float:
    """Of eight prompts, none to three have a verifier."""
    return random.Random(step).choice([0, 1, 1, 2, 2, 3]) / 8


def test_a_part_that_few_responses_have_is_a_warning_if_it_is_not_learned() -> None:
    finding = run(FALLING, of_few_groups).finding("REW017")
    assert finding.severity == "warning"
    assert "lack accuracy_reward" in finding.summary


def test_a_part_that_is_learned_all_the_same_is_a_note() -> None:
    """Several tasks, each with its own reward function, which returns None for the others."""
    assert run(RISING, of_few_groups).finding("REW017").severity == "info"


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_fixed_weights_and_constant_shares_leave_nothing(share: float) -> None:
    assert run(FALLING, lambda _: share).findings("REW017") == []


def test_weights_that_change_once_leave_nothing() -> None:
    assert run(FALLING, lambda step: 1.0 if step < 45 else 0.3).findings("REW017") == []


def test_weights_of_a_schedule_leave_nothing() -> None:
    """The weight of the accuracy rises, and that of brevity falls."""

    def reward(step: int) -> float:
        return (1 + step / 100) * FALLING(step) + (1 - step / 100) * SHORTER(step)

    curves: dict[str, Curve] = {"reward/mean": reward, ACCURACY: FALLING, BREVITY: SHORTER}
    assert Patient(steps(80, curves), framework="trl").findings("REW017") == []


def test_other_frameworks_may_have_parts_that_are_not_logged() -> None:
    assert run(FALLING, of_few_groups, "verl").findings("REW017") == []
