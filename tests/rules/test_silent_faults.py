"""Faults that leave the reward rising: rules that were written for causes planted unseen."""

from __future__ import annotations

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps

REFERENCE, OLD = "kl/reference/k3", "kl/old_policy/k3"
ZERO, EQUAL = "advantage/zero_rate", "groups/zero_variance_rate"
UNTRAINED, COEFFICIENT = "optimizer/untrained_token_rate", "optimizer/entropy_coefficient"
SPREAD = "groups/reward_std"
GROUP: dict[str, Setting] = {"advantage": "group"}


def run(
    curves: dict[str, Curve],
    *,
    count: int = 60,
    knobs: dict[str, Setting] | None = None,
    framework: str = "grpodoctor",
    without: tuple[str, ...] = (),
) -> Patient:
    every = {name: c for name, c in {**healthy(1), **curves}.items() if name not in without}
    return Patient(steps(count, every), knobs=knobs, framework=framework)


def test_a_reference_that_follows_the_policy_has_the_kl_of_one_batch() -> None:
    update = noisy(0.0004, 0.0002, 1, low=1e-5)
    finding = run({OLD: update, REFERENCE: update}).finding("KLD005")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert finding.remedies == ("check-reference",)


def test_a_fixed_reference_or_a_policy_at_rest_is_quiet() -> None:
    update = noisy(0.0004, 0.0002, 1, low=1e-5)
    assert run({OLD: update, REFERENCE: ramp(0.0004, 0.08, 60)}).findings("KLD005") == []
    assert run({OLD: 0.0, REFERENCE: 0.0}).findings("KLD005") == []
    assert run({OLD: update, REFERENCE: update}, count=30).findings("KLD005") == []


def test_without_a_reference_it_is_skipped() -> None:
    names = tuple(f"kl/reference/{each}" for each in ("k1", "k2", "k3"))
    assert "KLD005" in skipped(run({}, without=names))


def test_equal_rewards_with_advantages_mix_the_groups() -> None:
    finding = run({EQUAL: 0.125, ZERO: 0.0}, knobs=GROUP).finding("GRP008")
    assert finding.severity == "critical"
    assert "20 of 20 batches" in finding.summary


@pytest.mark.parametrize(
    "curves",
    [
        {EQUAL: 0.125, ZERO: noisy(0.12, 0.01, 1, low=0.05)},
        {EQUAL: 0.0, ZERO: 0.0},
        {EQUAL: 0.125, ZERO: 0.0, "optimizer/left_out_rate": 0.125},
        {EQUAL: 0.125, ZERO: 0.0, "reward/kl_penalty": 0.01},
    ],
)
def test_zero_advantages_filtered_groups_and_a_kl_in_the_reward_are_quiet(
    curves: dict[str, Curve],
) -> None:
    assert run(curves, knobs=GROUP).findings("GRP008") == []


def test_rounded_means_and_other_estimators_are_not_judged() -> None:
    curves: dict[str, Curve] = {EQUAL: 0.125, ZERO: 0.0}
    assert "GRP008" in skipped(run(curves, knobs=GROUP, framework="prime-rl"))
    assert "GRP008" in skipped(run(curves, knobs={"advantage": "batch_std"}))


def test_generated_tokens_outside_the_loss_are_named() -> None:
    finding = run({UNTRAINED: 1 / 12}).finding("DAT005")
    assert (finding.severity, finding.remedies) == ("warning", ("check-loss-mask",))


def test_a_complete_mask_is_quiet_and_an_unknown_one_is_skipped() -> None:
    assert run({UNTRAINED: 0.0}).findings("DAT005") == []
    assert run({UNTRAINED: NotApplicable("no response is in the loss")}).findings("DAT005") == []
    assert "DAT005" in skipped(run({}))


def test_a_negative_coefficient_in_force_is_named() -> None:
    finding = run({COEFFICIENT: lambda step: 0.01 if step < 30 else -0.01}).finding("ENT005")
    assert (finding.severity, finding.onset_step) == ("warning", 30)


def test_a_bonus_is_quiet_and_without_one_the_rule_is_skipped() -> None:
    assert run({COEFFICIENT: 0.01}).findings("ENT005") == []
    assert run({COEFFICIENT: 0.0}).findings("ENT005") == []
    assert "ENT005" in skipped(run({}))


def test_rewards_that_differ_by_jitter_alone_get_a_note() -> None:
    assert run({SPREAD: noisy(3e-5, 3e-6, 1)}).finding("GRP009").severity == "info"


def test_usual_spreads_equal_rewards_and_undivided_advantages_are_quiet() -> None:
    assert run({SPREAD: 0.4}).findings("GRP009") == []
    assert run({SPREAD: 0.0}).findings("GRP009") == []
    assert run({SPREAD: 3e-5}, knobs={"advantage": "centred"}).findings("GRP009") == []
    assert "GRP009" in skipped(run({}, without=(SPREAD, "reward/std")))


def entropy(change: float, *, over: int = 0) -> dict[str, Curve]:
    """An entropy that changes at step 40, at once or over several steps."""

    def level(step: int) -> float:
        return 0.27 + change * min(1.0, max(0, step - 39) / (over or 1))

    return {"entropy/mean": noisy(level, 0.02, 1), OLD: 2e-5, "updates_per_batch": 4}


def test_an_entropy_that_jumps_beyond_the_updates_gets_a_note() -> None:
    finding = run(entropy(0.25)).finding("SYN009")
    assert (finding.severity, finding.onset_step) == ("info", 40)
    assert run(entropy(-0.25)).finding("SYN009").onset_step == 40


def test_slopes_small_steps_and_large_updates_are_quiet() -> None:
    assert run(entropy(0.25, over=15)).findings("SYN009") == []
    assert run(entropy(0.05)).findings("SYN009") == []
    assert run({**entropy(0.25), OLD: 0.05}).findings("SYN009") == []
    assert run(entropy(0.0)).findings("SYN009") == []
    assert "SYN009" in skipped(run({}, without=("entropy/mean",)))


def skipped(patient: Patient) -> set[str]:
    """Codes of the rules that could not look."""
    return {each.code for each in patient.engine.diagnosis().skipped}
