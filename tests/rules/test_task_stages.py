"""Jumps that come with another stage of a curriculum."""

from __future__ import annotations

import pytest

from tests.rules.scenario import Curve, Patient, noisy, steps

REWARD, STAGE = "reward/mean", "prompts/stage"


def _jump(before: float, after: float) -> Curve:
    return noisy(lambda step: before if step < 60 else after, 0.02 * before, 1)


def _stage(step: int) -> float:
    return 0.0 if step < 60 else 1.0


def _reward(after: Curve, *, stage: Curve | None) -> Patient:
    curves: dict[str, Curve] = {REWARD: after}
    if stage is not None:
        curves[STAGE] = stage
    return Patient(steps(120, curves))


def test_a_fall_with_another_stage_is_a_note() -> None:
    finding = _reward(_jump(4.5, 1.2), stage=_stage).finding("REW002")
    assert (finding.severity, finding.remedies) == ("info", ())
    assert finding.summary.endswith("as other tasks began at step 60.")
    assert _reward(_jump(4.5, 1.2), stage=None).finding("REW002").severity != "info"


@pytest.mark.parametrize(
    "stage", [lambda step: float(step % 3), lambda step: float(step >= 30), 1.0]
)
def test_other_columns_do_not_explain_the_fall(stage: Curve) -> None:
    assert _reward(_jump(4.5, 1.2), stage=stage).finding("REW002").severity != "info"


def test_a_reward_that_keeps_falling_in_the_new_stage_has_collapsed() -> None:
    def at(step: int) -> float:
        return 4.5 if step < 60 else max(0.1, 3.0 - 0.06 * (step - 60))

    finding = _reward(noisy(at, 0.05, 1), stage=_stage).finding("REW002")
    assert (finding.severity != "info", finding.active) == (True, True)


def test_longer_responses_to_other_tasks_are_no_explosion() -> None:
    def found(stage: Curve) -> set[str]:
        curves: dict[str, Curve] = {
            REWARD: _jump(4.5, 1.2),
            "length/mean": noisy(lambda step: 100 if step < 60 else 220, 2, 2),
            STAGE: stage,
        }
        return {each.code for each in Patient(steps(120, curves)).engine.diagnosis().findings}

    assert "LEN006" in found(0.0)
    assert "LEN006" not in found(_stage)


def test_tasks_that_pay_on_another_scale_did_not_change_the_reward_function() -> None:
    def found(stage: Curve) -> list[object]:
        curves: dict[str, Curve] = {
            REWARD: _jump(0.5, 2.0),
            "reward/max": lambda step: 1.0 if step < 60 else 4.0,
            STAGE: stage,
        }
        return list(Patient(steps(120, curves)).findings("REW016"))

    assert found(0.0) != []
    assert found(_stage) == []
