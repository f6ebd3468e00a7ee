"""The vital signs that a report begins with."""

from __future__ import annotations

from grpodoctor.monitor.vitals import format_number, vital_signs
from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, noisy, steps


def rate_shown(curve: Curve, **knobs: Setting) -> bool:
    curves: dict[str, Curve] = {"reward/mean": noisy(0.4, 0.1, 1), "optimizer/learning_rate": curve}
    signs = vital_signs(Patient(steps(30, curves), knobs=knobs).engine.chart)
    return "learning rate" in {each.label for each in signs}


def test_a_learning_rate_that_a_console_rounds_to_zero_is_left_out() -> None:
    assert not rate_shown(0.0, learning_rate=1e-6)
    assert rate_shown(1e-6, learning_rate=1e-6)
    assert rate_shown(0.0), "without a setting, it may be 0"
    assert rate_shown(0.0, learning_rate=0.0)


def test_an_entropy_of_zero_in_every_row_is_no_reading() -> None:
    def why(entropy: Curve) -> str:
        curves: dict[str, Curve] = {"reward/mean": noisy(0.4, 0.1, 1), "entropy/mean": entropy}
        signs = vital_signs(Patient(steps(200, curves)).engine.chart)
        return next(each.why_not for each in signs if each.metric == "entropy/mean")

    assert "did not compute" in why(0.0)
    assert why(0.2) == ""
    assert why([0.5] * 20 + [0.0]) == "", "it has fallen to 0"


def test_another_estimate_takes_the_place_of_a_vital_sign_that_is_not_logged() -> None:
    def labels(*metrics: str) -> list[str]:
        curves: dict[str, Curve] = dict.fromkeys(("reward/mean", *metrics), noisy(0.4, 0.1, 1))
        return [each.label for each in vital_signs(Patient(steps(30, curves)).engine.chart)]

    assert labels("entropy/sampled", "kl/reference/k1") == [
        "reward",
        "sampled entropy",
        "KL to reference (k1)",
    ]
    assert labels("entropy/sampled", "entropy/mean") == ["reward", "entropy"]


def test_a_negative_zero_is_printed_as_zero() -> None:
    assert format_number(-0.0) == "0"
