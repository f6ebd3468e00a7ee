from __future__ import annotations

import math
import random

import pytest

from tests.rules.scenario import Curve, Patient, noisy, ramp, steps
from tests.rules.scenario import altered as run

LOSS, GRADIENT, FLAT = "optimizer/loss", "optimizer/grad_norm", "groups/zero_variance_rate"


def test_a_single_spike_is_at_most_info() -> None:
    curve = [2.4] * 30 + [80.0] + [2.4] * 30
    noise = [value * (1 + 0.1 * math.sin(7 * i)) for i, value in enumerate(curve)]
    finding = run({GRADIENT: noise}).finding("OPT002")
    assert (finding.severity, finding.onset_step, finding.last_step) == ("info", 30, 30)
    assert not finding.active
    assert finding.evidence[0].baseline == pytest.approx(2.4, rel=0.1)


def test_spikes_that_come_again_are_a_warning() -> None:
    curve = ([2.4, 2.5, 2.3, 2.4] * 8) + [80.0, 2.4, 2.4, 90.0, 2.4, 70.0, 2.4, 2.4]
    assert run({GRADIENT: curve}, count=40).finding("OPT002").severity == "warning"


def test_a_gradient_that_is_noisy_or_mostly_zero_has_no_spikes() -> None:
    """Healthy public runs with maxima of 5 to 6 times the mean, and one mostly at zero."""
    lively = [1.0, 0.4, 2.2, 0.8, 4.9, 0.6, 1.5, 0.3, 1.1, 0.9]
    assert run({GRADIENT: lively * 6}).findings("OPT002") == []
    assert run({GRADIENT: ([0.0] * 9 + [0.15]) * 6}).findings("OPT002") == []


def test_a_rising_gradient_is_no_spike() -> None:
    assert run({GRADIENT: noisy(ramp(0.4, 4.0, 50), 0.1, 2)}).findings("OPT002") == []


def test_a_gradient_that_is_small_and_large_by_turns_has_no_spikes() -> None:
    """A public run with two groups to a batch: .05 to .3 nats, or 2 to 6."""
    rng = random.Random(4)
    bounds = [(2.0, 6.0) if rng.random() < 0.25 else (0.05, 0.3) for _ in range(200)]
    curve = [rng.uniform(*each) for each in bounds]
    assert run({GRADIENT: curve}, count=200).findings("OPT002") == []


def test_the_gradient_of_a_penalty_alone_makes_no_range() -> None:
    """A public run: most groups flat at first, a gradient of 1e-5 there, of .1 elsewhere."""
    rng = random.Random(6)
    flat = [float(rng.random() < 0.95) for _ in range(120)]
    curve = [1e-5 if each else rng.uniform(0.05, 0.2) for each in flat]
    assert run({GRADIENT: curve, FLAT: flat}, count=120).findings("OPT002") == []


def spiked(at: dict[int, float], others: dict[str, Curve] | None = None) -> Patient:
    def gradient(step: int) -> float:
        return at.get(step, 0.9 + 0.02 * (step % 5))

    return Patient(steps(60, {"optimizer/grad_norm": gradient, **(others or {})}))


def test_a_gradient_of_a_hundred_times_the_median_is_a_warning_from_the_fifth_reading() -> None:
    finding = spiked({6: 400.0}).finding("OPT002")
    assert (finding.severity, finding.onset_step) == ("warning", 6)
    assert spiked({40: 300.0}).finding("OPT002").severity == "warning"
    assert spiked({40: 20.0}).finding("OPT002").severity == "info"
    assert spiked({3: 400.0}).findings("OPT002") == []


def test_repeated_spikes_of_gradient_and_divergence_are_critical() -> None:
    divergence: Curve = lambda step: 3.0 if step in (30, 40) else 0.01  # noqa: E731 - a curve
    both = spiked({30: 400.0, 40: 500.0}, {"kl/reference/k3": divergence})
    finding = both.findings("OPT002")[-1]
    assert finding.severity == "critical"
    assert "the reference KL (k3)" in finding.summary
    once = spiked({30: 400.0}, {"kl/reference/k3": divergence}).findings("OPT002")
    assert [each.severity for each in once] == ["warning"]


def test_a_gradient_that_returns_to_its_starting_level_is_no_spike() -> None:
    """A nearly solved run: most gradients are tiny, and some batches still have signal."""

    def gradient(step: int) -> float:
        return 4.0 if step < 20 or step % 7 == 0 else 0.004

    patient = Patient(steps(200, {"optimizer/grad_norm": gradient}))
    assert [each for each in patient.findings("OPT002") if each.severity != "info"] == []


def jumped(at: dict[int, float], others: dict[str, Curve] | None = None) -> Patient:
    def loss(step: int) -> float:
        return at.get(step, 0.01 * (step % 7 - 3))

    return Patient(steps(60, {"optimizer/loss": loss, **(others or {})}))


def test_a_loss_that_jumps_is_reported() -> None:
    assert jumped({40: 1.0}).finding("OPT004").severity == "info"
    repeated = jumped({40: 1.0, 44: -1.2, 48: 1.1}).findings("OPT004")
    assert repeated[-1].severity == "warning"
    gradient: Curve = lambda step: 50.0 if step == 40 else 1.0  # noqa: E731 - a curve
    joint = jumped({40: 5.0}, {"optimizer/grad_norm": gradient}).finding("OPT004")
    assert joint.severity == "warning"
    assert "gradient norm spikes" in joint.summary


def test_extreme_losses_that_return_after_a_while_are_a_warning() -> None:
    """Each is alone among twenty readings, and no bounded ratio explains any."""
    repeated = jumped({12: 90.0, 33: 400.0, 55: 60.0})
    assert [each.severity for each in repeated.findings("OPT004")] == ["info", "info", "warning"]
    assert "jumped to 60" in repeated.findings("OPT004")[-1].summary
    bounded = jumped({12: 2.0, 33: 3.0, 55: 4.0}).findings("OPT004")
    assert {each.severity for each in bounded} == {"info"}
    assert "over 10,000 times" in jumped({40: 9e6}).finding("OPT004").summary


def penalized(divergences: dict[int, float], coefficient: float = 3e-3) -> Patient:
    """A loss whose penalty follows the KL to the reference."""
    kl = "kl/reference/k3"

    def divergence(step: int) -> float:
        return divergences.get(step, 2.0 + step % 3)

    return jumped(
        {step: coefficient * value for step, value in divergences.items()}, {kl: divergence}
    )


def test_penalties_that_single_tokens_dominate_are_a_warning() -> None:
    """A public run: 3395 and 1007 nats at its readings 10 and 11, which hid the later spikes."""
    finding = penalized({10: 3395.0, 11: 1007.0}).finding("OPT004")
    assert (finding.severity, finding.onset_step) == ("warning", 11)
    assert "jumped 2 times, to 10" in finding.summary
    assert "3.4e+03 nats" in finding.summary
    assert finding.evidence[1].metric == "kl/reference/k3"


@pytest.mark.parametrize(
    "patient",
    [penalized({10: 3395.0}), penalized({30: 3395.0, 40: 1007.0}, 0.0),
     penalized({30: 60.0, 31: 50.0}, 0.02)],
    ids=["once", "no penalty", "few nats"],
)  # fmt: skip
def test_a_divergence_that_spikes_without_the_loss_or_only_once_is_no_alarm(
    patient: Patient,
) -> None:
    assert [each for each in patient.findings("OPT004") if each.severity != "info"] == []


@pytest.mark.parametrize("tokens", [1.0, 1e5], ids=["a mean", "a sum"])
def test_a_single_loss_that_no_bounded_ratio_explains_is_a_warning(tokens: float) -> None:
    """Public runs: -6e9 after 2e3, and 6e11, in losses that are sums over the tokens."""

    def loss(spike: float) -> Patient:
        def at(step: int) -> float:
            return tokens * (spike if step == 40 else 0.01 * (step % 7 - 3))

        return Patient(steps(60, {"optimizer/loss": at}))

    finding = loss(-2e4).finding("OPT004")
    assert finding.severity == "warning"
    assert "without bound" in finding.summary
    assert loss(-20.0).finding("OPT004").severity == "info"


def test_an_ordinary_loss_is_quiet_and_a_missing_one_is_skipped() -> None:
    assert jumped({}).findings("OPT004") == []
    assert jumped({40: 0.1}).findings("OPT004") == []
    zeros: Curve = lambda step: 0.0 if step < 40 else 0.0016  # noqa: E731 - a curve
    assert Patient(steps(80, {"optimizer/loss": zeros})).findings("OPT004") == []
    skipped = Patient(steps(30, {"reward/mean": 0.5})).engine.diagnosis().skipped
    assert "OPT004" in {each.code for each in skipped}


def test_batches_with_signal_among_vanished_gradients_are_no_extreme_spikes() -> None:
    """A healthy agent run: nine gradients in ten near .01, the others up to 10, reward .93."""
    rng = random.Random(4)
    start = [3.0 + rng.random() for _ in range(20)]
    late = [rng.uniform(2, 9) if rng.random() < 0.08 else 0.01 * rng.random() for _ in range(400)]
    curves: dict[str, Curve] = {GRADIENT: start + late, "reward/mean": noisy(0.93, 0.01, 5)}
    found = Patient(steps(420, curves)).findings("OPT002")
    assert [each for each in found if each.severity != "info"] == []


def test_spikes_of_a_loss_that_is_a_rest_of_rounding_do_not_count() -> None:
    """A public run whose loss is its KL penalty of 1e-5, with peaks of 4e-4."""
    loss = [1e-5 * (1 + step % 4) if step % 15 else 4e-4 for step in range(1, 120)]
    assert Patient(steps(119, {LOSS: loss})).findings("OPT004") == []


def test_an_impossible_loss_needs_no_earlier_readings() -> None:
    """A public run: a loss of 1e20 and a KL of 3e21 at the fifth reading."""
    curves: dict[str, Curve] = {
        "optimizer/loss": [0.0, 0.0, 0.0, 0.0006, 1.35e20],
        "kl/reference/k3": [0.0001, 0.0002, 0.001, 0.01, 2.7e21],
    }
    finding = Patient(steps(5, curves)).finding("OPT004")
    assert finding.severity == "critical"
    assert "KL to the reference of 2.7e+21" in finding.summary
    assert Patient(steps(5, {"optimizer/loss": [2e3, 1e3, 2e3, 1e3, 9e8]})).findings("OPT004") == []
