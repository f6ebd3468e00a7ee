"""REW014: a reward that falls within two readings."""

from __future__ import annotations

from tests.rules.scenario import Curve, Patient, noisy, ramp, steps
from tests.rules.test_reward_progress import run

REWARD = "reward/mean"
RISING: Curve = noisy(ramp(0.2, 0.7, 70), 0.04, 1)


def breaks_down(*last: float, scale: float = 0.08, low: float = 0.0) -> list[float]:
    """Seventy steps around .77, as in a public run of 64 episodes per step, and the last ones."""
    curve = noisy(0.77, scale, 5, low=low)
    values = (curve(step) for step in range(70))
    return [*(value for value in values if isinstance(value, float)), *last]


def test_two_readings_far_below_all_earlier_ones_are_a_sudden_fall() -> None:
    reward = breaks_down(0.5, 0.23, 0.14)
    finding = run({REWARD: reward}, len(reward)).finding("REW014")
    assert (finding.severity, finding.active, finding.onset_step) == ("warning", True, 71)
    assert "0.23 and 0.14" in finding.summary
    negative = [value - 1.0 for value in breaks_down(-0.5, -0.6)]
    assert run({REWARD: negative}, len(negative)).finding("REW014").severity == "warning"


def test_a_single_low_reading_or_noise_is_no_sudden_fall() -> None:
    once = breaks_down(0.1, 0.75, 0.1, 0.8)
    assert run({REWARD: once}, len(once)).findings("REW014") == []
    single_prompts = [float(step * 7 % 5 > 1) for step in range(100)] + [0.0, 0.0]
    assert run({REWARD: single_prompts}, 102).findings("REW014") == []
    early = breaks_down(0.1, 0.1)[-12:]
    assert run({REWARD: early}, 12).findings("REW014") == []
    assert run({REWARD: RISING}).findings("REW014") == []


def test_a_short_log_must_fall_further_for_a_sudden_fall() -> None:
    high = [0.9, 0.88, 0.92, 0.99, 0.99, 0.93, 0.97, 0.96, 0.95, 0.92, 0.98, 0.94]
    finding = run({REWARD: [*high, 0.57, 0.0]}, 14).finding("REW014")
    assert (finding.severity, finding.onset_step) == ("warning", 12)
    spread = [0.4, 0.44, 0.5, 0.57, 0.6, 0.56, 0.5, 0.45, 0.41, 0.42]  # 0 is at 6.9 noises
    assert run({REWARD: [*spread, 0.0, 0.0]}, 12).findings("REW014") == []
    assert run({REWARD: [*spread, *spread, 0.0, 0.0]}, 22).finding("REW014").severity == "warning"


def test_a_fall_that_recovers_resolves() -> None:
    reward = breaks_down(0.2, 0.1, *[0.75] * 10)
    assert not run({REWARD: reward}, len(reward)).finding("REW014").active


def test_a_sudden_fall_needs_an_outcome() -> None:
    patient = Patient(steps(40, {"optimizer/loss": 0.1}))
    assert "REW014" in {each.code for each in patient.engine.diagnosis().skipped}
