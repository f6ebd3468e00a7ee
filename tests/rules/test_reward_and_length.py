"""REW015 and LEN002: short runs whose reward falls while their responses change length."""

from __future__ import annotations

import pytest

from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

REWARD, LENGTH, CUT = "reward/mean", "length/mean", "length/truncated_rate"

RISE_AND_FALL = [0.38, 0.4, 0.52, 0.58, 0.57, 0.6, 0.59, 0.57, 0.55, 0.48, 0.4, 0.34, 0.31]
"""A public run with a length penalty: thirteen readings of 512 responses each."""
SHRINKING = [350, 342, 320, 290, 265, 240, 215, 190, 170, 150, 125, 100, 88]
LONGER = [0.35, 0.3, 0.22, 0.15, 0.12, 0.1, 0.09, 0.1, 0.16, 0.22, 0.3, 0.42, 0.5]


def run(curves: dict[str, Curve], count: int = 13) -> Patient:
    return Patient(steps(count, curves))


def test_a_reward_that_falls_as_responses_halve_is_a_warning() -> None:
    finding = run({REWARD: RISE_AND_FALL, LENGTH: SHRINKING}).finding("REW015")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "while mean length fell from 342 to 88 tokens" in finding.summary
    assert 5 <= finding.onset_step <= 9


def test_a_reward_that_falls_as_truncation_returns_is_a_warning_of_truncation() -> None:
    """Responses that became longer are not too short: the cause is the limit, or the length."""
    patient = run({REWARD: RISE_AND_FALL, LENGTH: 400, CUT: LONGER}, 14)
    finding = patient.finding("LEN002")
    assert finding.severity == "warning"
    expected = "Truncated responses rose from 10% to 50% while reward fell from 0.587 to 0.3"
    assert finding.summary.startswith(expected)
    assert patient.findings("REW015") == []
    assert run({REWARD: 0.4, LENGTH: 400, CUT: LONGER}, 14).findings("LEN002") == []


def test_loops_that_run_to_the_limit_explain_the_fall_of_the_reward() -> None:
    """The reward falls since responses have no end, and not since they are too short."""
    loops = ramp(0.0, 0.75, 25, begin=13)
    patient = run(
        {
            REWARD: noisy(lambda step: 0.52 * (1 - loops(step)), 0.03, 1),
            LENGTH: noisy(lambda step: 150 + 360 * loops(step), 8, 2),
            CUT: noisy(loops, 0.01, 3),
        },
        51,
    )
    assert patient.findings("REW015") == []
    first = patient.engine.diagnosis().findings
    assert "LEN002" in {each.code for each in first if each.active}


@pytest.mark.parametrize(
    "curves",
    [
        {REWARD: RISE_AND_FALL, LENGTH: 350},
        {REWARD: RISE_AND_FALL, LENGTH: [value / 20 for value in SHRINKING]},
        {REWARD: ramp(0.38, 0.6, 12), LENGTH: SHRINKING},
        {REWARD: [value - 0.5 for value in RISE_AND_FALL], LENGTH: SHRINKING},
        {REWARD: [0.0, 0.6, 0.1, 0.7, 0.2, 0.6, 0.0, 0.7, 0.5, 0.3, 0.1, 0.2, 0.3],
         LENGTH: SHRINKING},
    ],
    ids=["length stays", "few tokens", "reward rises", "negative rewards", "noise"],
)  # fmt: skip
def test_neither_alone_nor_noise_is_a_finding(curves: dict[str, Curve]) -> None:
    assert run(curves).findings("REW015") == []


@pytest.mark.parametrize("seed", range(20))
def test_a_format_that_is_learned_is_quiet(seed: int) -> None:
    """A public run: 350 to 150 tokens while the reward rose from .34 to .51 and stayed."""
    curves: dict[str, Curve] = {
        REWARD: noisy(ramp(0.34, 0.52, 6), 0.04, seed),
        LENGTH: noisy(ramp(350, 150, 12), 8, seed + 100),
    }
    assert run(curves, 30).findings("REW015") == []


def test_longer_runs_are_left_to_rules_with_levels() -> None:
    reward = [*[0.6] * 40, *RISE_AND_FALL[-6:]]
    length = [*[350] * 40, *SHRINKING[-6:]]
    assert run({REWARD: reward, LENGTH: length}, 46).findings("REW015") == []


def test_it_needs_a_length() -> None:
    patient = run({REWARD: RISE_AND_FALL})
    assert "REW015" in {each.code for each in patient.engine.diagnosis().skipped}
