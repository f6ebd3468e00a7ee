from __future__ import annotations

import pytest

from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

REWARD = "reward/mean"


def raw_advantages(**knobs: Setting) -> Patient:
    """One response per prompt: advantages are the rewards, weighted by tokens."""
    reward = noisy(ramp(-0.3, 0.2, 60), 0.2, 1, low=-9)
    return Patient(
        steps(60, {REWARD: reward, "advantage/mean": noisy(reward, 0.01, 2, low=-9)}), knobs=knobs
    )


def test_advantages_that_are_the_rewards_have_no_baseline() -> None:
    finding = raw_advantages().finding("GRP005")
    assert (finding.severity, finding.active, finding.onset_step) == ("warning", True, 4)
    assert finding.summary.startswith("No baseline is subtracted")
    assert finding.remedies == ("larger-groups",)


def test_the_size_of_the_group_is_named_where_it_is_known() -> None:
    said = raw_advantages(group_size=1, advantage="group").finding("GRP005").summary
    assert "(1 response per prompt)" in said


def test_advantages_of_groups_and_of_a_critic_need_no_other_baseline() -> None:
    assert raw_advantages(advantage="gae").findings("GRP005") == []
    for level in (0.0, 0.02, 0.6):
        reward = noisy(level, 0.2, 1, low=-9)
        compared = {REWARD: reward, "advantage/mean": noisy(0.0, 0.01, 2, low=-9)}
        assert Patient(steps(60, compared)).findings("GRP005") == []


@pytest.mark.parametrize(
    ("none_below", "some_below"),
    [
        ({"advantage/min": 0.0, "advantage/max": 1.0}, {"advantage/min": -0.9}),
        (
            {"advantage/positive_rate": 0.4, "advantage/zero_rate": 0.6},
            {"advantage/zero_rate": 0.2},
        ),
    ],
)
def test_batches_without_a_negative_advantage_have_no_baseline(
    none_below: dict[str, Curve], some_below: dict[str, Curve]
) -> None:
    curves = {REWARD: noisy(0.5, 0.1, 1), **none_below}
    finding = Patient(steps(60, curves)).finding("GRP005")
    assert finding.severity == "warning"
    assert finding.summary.startswith("No advantage is negative in 20 batches")
    assert Patient(steps(60, curves), knobs={"advantage": "gae"}).findings("GRP005") == []
    assert Patient(steps(60, curves | some_below)).findings("GRP005") == []
    # open-instruct logs the reward after filtering, which says nothing, and the accuracy.
    accuracy = {"accuracy/train": noisy(0.5, 0.1, 1), **none_below}
    assert Patient(steps(60, accuracy)).finding("GRP005").severity == "warning"


def test_batches_without_any_advantage_say_nothing_of_a_baseline() -> None:
    none: dict[str, Curve] = {REWARD: 1.0, "advantage/min": 0.0, "advantage/max": 0.0}
    assert Patient(steps(60, none)).findings("GRP005") == []


def test_without_any_reward_there_is_nothing_to_subtract_from() -> None:
    nothing: dict[str, Curve] = {REWARD: 0.0, "advantage/mean": 0.0}
    assert Patient(steps(60, nothing)).findings("GRP005") == []


def test_rare_rewards_say_nothing_of_the_batches_without_any() -> None:
    rare: dict[str, Curve] = {REWARD: [0.0, 0.0, 0.1, *[0.0] * 60], "advantage/mean": 0.0}
    assert Patient(steps(60, rare)).findings("GRP005") == []


def trl_losses(loss: Curve, framework: str = "trl", **knobs: Setting) -> Patient:
    """TRL logs no advantages: its loss is minus their weighted mean."""
    curves: dict[str, Curve] = {REWARD: noisy(0.42, 0.1, 1), "optimizer/loss": loss}
    return Patient(steps(60, curves), knobs=knobs, framework=framework)


def test_a_loss_far_below_zero_shows_advantages_without_a_baseline() -> None:
    far = noisy(-0.77, 0.03, 2, low=-9)
    finding = trl_losses(far).finding("GRP005")
    assert (finding.severity, "0.7" in finding.summary) == ("info", True)
    assert trl_losses(far, advantage="group").finding("GRP005").severity == "warning"
    assert trl_losses(far, framework="generic").findings("GRP005") == []
    assert trl_losses(noisy(-0.1, 0.1, 2, low=-9)).findings("GRP005") == []
