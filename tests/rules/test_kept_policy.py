"""Falls of the reward that come from outside the policy, and falls of the policy itself."""

from __future__ import annotations

from functools import partial

import pytest

from grpodoctor.rules.shared.health.heldout import heldout_level_kept_since
from tests.rules.scenario import Curve, Patient, altered, every, noisy, ramp

ACCURACY, REWARD, HELDOUT = "accuracy/train", "reward/mean", "accuracy/heldout"

run = partial(altered, count=120)


def outage(*, kl_after: float = 0.055, gradient: float = 0.3, **evaluated: Curve) -> Patient:
    """A public run: the search tool fails from step 60 on, and the reward goes from .3 to .06."""
    after = lambda before, then: lambda step: then if step >= 60 else before  # noqa: E731
    curves: dict[str, Curve] = {
        REWARD: noisy(after(0.31, 0.06), 0.015, 3),
        "kl/reference/k3": noisy(after(0.05, kl_after), 0.004, 4),
        "entropy/mean": noisy(after(0.05, 0.06), 0.004, 5),
        "optimizer/grad_norm": lambda step: gradient if step == 59 else 0.3,
    }
    return run({**curves, **evaluated}, without=(ACCURACY, *({HELDOUT} - evaluated.keys())))


def test_a_fall_from_outside_while_held_out_accuracy_rises_is_a_note() -> None:
    finding = outage(**{HELDOUT: every(10, noisy(ramp(0.3, 0.6, 120), 0.01, 6))}).finding("REW002")
    assert (finding.severity, finding.remedies) == ("info", ("recheck-reward",))


def test_a_fall_in_one_step_without_a_change_of_the_policy_comes_from_outside() -> None:
    finding = outage().finding("REW002")
    assert "in step 60; the environment or verifier changed" in finding.summary
    assert finding.remedies[0] == "recheck-reward"
    assert "kl/reference/k3" in {each.metric for each in finding.evidence}


@pytest.mark.parametrize("changes", [{"kl_after": 0.4}, {"gradient": 9.0}], ids=str)
def test_a_policy_that_breaks_down_is_blamed_for_its_fall(changes: dict[str, float]) -> None:
    finding = outage(**changes).finding("REW002")
    assert "in step" not in finding.summary
    assert finding.remedies[0] == "lower-learning-rate"


def test_a_fall_over_many_steps_comes_from_the_policy() -> None:
    curve = noisy(ramp(0.31, 0.06, 20, begin=60), 0.015, 3)
    finding = run({REWARD: curve, "kl/reference/k3": 0.05}, without=(ACCURACY,)).finding("REW002")
    assert "in step" not in finding.summary


def test_evaluations_that_had_fallen_before_a_late_date_do_not_clear_the_policy() -> None:
    """The training reward is dated to step 70; the evaluations fell from .8 to .52 at step 40."""
    fallen = every(5, noisy(lambda step: 0.8 if step < 40 else 0.52, 0.01, 4))
    kept = every(5, noisy(0.8, 0.01, 4))
    curves: dict[str, Curve] = {REWARD: noisy(0.4, 0.02, 3)}
    since = 70
    late, clear = (
        heldout_level_kept_since(run({**curves, HELDOUT: each}).engine.chart, since)
        for each in (fallen, kept)
    )
    assert late is None
    assert clear is not None
    assert clear[0] == HELDOUT
