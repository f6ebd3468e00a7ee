from __future__ import annotations

import math
import random

import pytest

from grpodoctor.rules.base import Finding
from grpodoctor.vocabulary.values import Max, Mean, NotApplicable, Rate
from tests.rules.scenario import Curve, Patient, Point, healthy, noisy, ramp, steps

LOSS, GRADIENT, TOKENS = "optimizer/loss", "optimizer/grad_norm", "optimizer/loss_tokens"
FLAT, WRONG, RIGHT = (
    "groups/zero_variance_rate",
    "groups/all_incorrect_rate",
    "groups/all_correct_rate",
)


def run(curves: dict[str, Curve], *, count: int = 60, without: tuple[str, ...] = ()) -> Patient:
    every = {**healthy(1), **curves}
    return Patient(steps(count, {name: c for name, c in every.items() if name not in without}))


def groups_off() -> tuple[str, ...]:
    return tuple(name for name in healthy(1) if name.startswith(("groups/", "advantage/")))


def test_a_loss_that_prints_zero_with_a_live_gradient_is_expected() -> None:
    """A public run: loss 0.0 on every row, gradient .003 to .006, spread of reward .2."""
    finding = run({LOSS: 0.0, GRADIENT: noisy(0.0045, 0.0008, 1)}).finding("OPT001")
    assert (finding.severity, finding.remedies) == ("info", ())
    assert "expected" in finding.summary


def test_missing_signal_is_separated_from_harmless_even_where_a_penalty_leaves_a_gradient() -> None:
    curves: dict[str, Curve] = {
        LOSS: 0.0,
        GRADIENT: noisy(0.003, 0.0005, 1),
        FLAT: 1.0,
        RIGHT: 0.0,
        WRONG: 1.0,
        "accuracy/train": 0.0,
        "reward/mean": 0.0,
    }
    patient = run(curves, count=40)
    assert patient.finding("OPT001").severity == "info"
    assert "no group varies" in patient.finding("OPT001").summary
    assert patient.engine.diagnosis().findings[0].code == "GRP002"  # the cause before the symptom


def test_without_signal_without_a_group_rate_is_seen_by_the_spread_of_the_batch() -> None:
    curves: dict[str, Curve] = {LOSS: 0.0, GRADIENT: 0.0, "reward/std": 0.0}
    finding = run(curves, without=groups_off()).finding("OPT001")
    assert "no group varies" in finding.summary
    assert finding.severity == "critical"


def test_without_signal_by_success_is_saturation() -> None:
    curves: dict[str, Curve] = {
        GRADIENT: 0.0,
        FLAT: 1.0,
        RIGHT: 1.0,
        WRONG: 0.0,
        "accuracy/train": 1.0,
        "reward/mean": 1.0,
    }
    finding = run(curves).finding("OPT001")
    assert finding.severity == "info"
    assert "prompts are solved" in finding.summary


def test_a_mask_that_removes_every_token_is_broken() -> None:
    finding = run({GRADIENT: 0.0, LOSS: 0.0, TOKENS: 0}).finding("OPT001")
    assert (finding.severity, finding.remedies) == ("critical", ("check-loss-mask",))
    assert "mask removes all tokens" in finding.summary


def test_groups_that_vary_without_a_gradient_are_broken() -> None:
    finding = run({GRADIENT: 0.0}).finding("OPT001")
    assert finding.severity == "critical"
    assert "although groups vary" in finding.summary


def test_an_unknown_cause_stays_open() -> None:
    finding = run({GRADIENT: 0.0}, without=groups_off()).finding("OPT001")
    assert finding.severity == "warning"
    assert "not logged" in finding.summary


def test_batches_of_few_prompts_without_a_gradient_are_no_alarm_while_others_have_one() -> None:
    """Six batches without a success come first, and half of the later ones are all or nothing."""
    later = [0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.0, 0.4, 0.5]
    gradients = [0.0] * 6 + later * 5 + later[:4]
    curves: dict[str, Curve] = {GRADIENT: gradients, "reward/mean": ramp(0.0, 0.1, 55)}
    finding = run(curves, without=groups_off()).finding("OPT001")
    assert finding.severity == "info"
    assert "group rewards, which would show why, are not logged" in finding.summary


def test_single_batches_without_signal_are_ordinary() -> None:
    sparse = [0.3, 0.0, 0.2, 0.4, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0] * 6
    assert run({GRADIENT: sparse}).findings("OPT001") == []


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


def test_one_token_that_is_not_finite_is_named_with_its_step() -> None:
    def kl(step: int) -> Mean:
        return Mean.of([0.01] * 1000 + ([math.nan] if step >= 20 else []))

    finding = run({"kl/reference/k3": kl}).finding("OPT003")
    assert (finding.severity, finding.onset_step) == ("critical", 20)
    assert finding.evidence[0].metric == "kl/reference/k3"
    assert finding.evidence[0].value == 1


def test_the_gradient_is_named_before_what_it_ruins() -> None:
    broken = lambda _: Mean(Mean.of([0.01]).total, 1, nonfinite=1)  # noqa: E731 - a curve
    patient = run({"kl/reference/k3": broken, GRADIENT: broken, "reward/mean": 0.0})
    finding = patient.finding("OPT003")
    assert finding.summary.startswith("The gradient norm has")


def test_an_infinite_ratio_names_its_sequence() -> None:
    finding = run({"ratio/max": lambda _: Max(math.inf, "step-3/7")}).finding("OPT003")
    assert finding.evidence[0].where == "step-3/7"


def test_what_is_not_part_of_the_update_is_a_warning() -> None:
    odd = lambda _: Mean(Mean.of([0.01]).total, 1, nonfinite=2)  # noqa: E731 - a curve
    assert run({"mismatch/logprob_diff_mean": odd}).finding("OPT003").severity == "warning"


def test_an_overflow_that_was_skipped_is_a_warning() -> None:
    broken = lambda step: Rate(int(step == 20), 4)  # noqa: E731 - a curve
    skipped: dict[str, Curve] = {
        "optimizer/nonfinite": broken,
        "optimizer/skipped_rate": broken,
    }
    assert run(skipped).finding("OPT003").severity == "warning"
    applied: dict[str, Curve] = {"optimizer/nonfinite": broken, "optimizer/skipped_rate": 0}
    assert run(applied).finding("OPT003").severity == "critical"


def test_an_extreme_over_nothing_is_not_infinite() -> None:
    assert run({"ratio/max": lambda _: Max.of([])}).findings("OPT003") == []


NOTHING = Mean.of([math.nan])
COMPONENT = "reward/component/code/mean"


@pytest.mark.parametrize(
    "name",
    [
        "accuracy/heldout",
        "reward/heldout/set/math",
        "pass_at_k/8",
        "accuracy/train",
        "length/correct",
        "length/incorrect",
        "entropy/correct",
        "tools/failure_rate",
        "mismatch/prob_diff_mean/position/0-15",
        COMPONENT,
        "reward/component/code/std",
    ],
)
def test_nan_where_a_batch_has_nothing_to_average_is_no_finding(name: str) -> None:
    def between(step: int) -> Point:
        return 0.3 if step % 5 == 4 else NOTHING

    assert run({name: between}).findings("OPT003") == []


@pytest.mark.parametrize("name", [LOSS, GRADIENT, "ratio/mean", "reward/mean", "entropy/mean"])
def test_nan_in_a_metric_of_every_batch_counts_its_readings(name: str) -> None:
    finding = run({name: lambda step: NOTHING if step >= 40 else 0.5}).finding("OPT003")
    assert finding.onset_step == 40
    assert "is NaN or infinite in 20 of 60 readings." in finding.summary
    assert math.isnan(finding.evidence[0].value)
    assert finding.evidence[0].baseline == 0.5


def test_a_partly_broken_mean_of_a_task_is_a_finding() -> None:
    odd = lambda _: Mean(Mean.of([0.3]).total, 1, nonfinite=2)  # noqa: E731 - a curve
    assert run({COMPONENT: odd}).finding("OPT003").severity == "warning"


def test_a_component_that_makes_the_reward_nan_is_named_with_it() -> None:
    def broken(step: int) -> Point:
        return NOTHING if step == 30 else 0.3

    finding = run({COMPONENT: broken, "reward/mean": broken}).finding("OPT003")
    assert finding.severity == "critical"
    assert [each.metric for each in finding.evidence] == ["reward/mean", COMPONENT]
    assert f"and so is {COMPONENT}" in finding.summary.replace("component code", COMPONENT)
    assert finding.remedies[1] == "recheck-reward"


def test_a_component_that_is_always_nan_is_a_note() -> None:
    assert run({COMPONENT: lambda _: NOTHING}, count=19).findings("OPT003") == []
    finding = run({COMPONENT: lambda _: NOTHING}).finding("OPT003")
    assert (finding.severity, finding.remedies) == ("info", ("recheck-reward",))
    assert finding.summary.startswith("Component code is NaN in all 60 readings")


def test_a_run_whose_every_metric_becomes_nan_is_found_where_it_began() -> None:
    names = (LOSS, GRADIENT, "reward/mean")
    curves = dict.fromkeys(names, lambda step: NOTHING if step >= 40 else 0.5)
    finding = Patient(steps(60, curves)).finding("OPT003")
    assert (finding.severity, finding.onset_step) == ("critical", 40)


@pytest.mark.parametrize(("begin", "is_active"), [(30, True), (10, False)])
def test_a_script_that_logs_the_loss_alone_may_print_numbers_between_nan(
    begin: int, is_active: bool
) -> None:
    """Twenty numbers before the first NaN show that every batch has a loss."""
    curves: dict[str, Curve] = {LOSS: lambda step: NOTHING if step >= begin and step % 4 else 0.5}
    findings = Patient(steps(80, curves)).findings("OPT003")
    assert [finding.severity for finding in findings if finding.active] == ["critical"] * is_active


def test_the_rows_of_evaluations_and_empty_rows_of_a_table_are_not_broken() -> None:
    curves = {
        **dict.fromkeys((LOSS, GRADIENT, "reward/mean"), lambda step: NOTHING if step % 10 else 1),
        "accuracy/heldout": lambda step: 0.5 if step % 10 == 5 else NOTHING,
    }
    assert Patient(steps(100, curves)).findings("OPT003") == []


def test_readings_of_an_abandoned_branch_do_not_count() -> None:
    patient = run({LOSS: lambda step: NOTHING if step >= 40 else 0.5})
    for record in steps(21, {**healthy(1), LOSS: lambda _: NOTHING}, first=40):
        patient.observe(record)
    assert "in 21 of 61 readings" in patient.findings("OPT003")[-1].summary


def test_absent_zero_and_not_applicable() -> None:
    names = tuple(name for name in healthy(1) if name.startswith("optimizer/"))
    skipped = {each.code for each in run({}, without=names).engine.diagnosis().skipped}
    assert {"OPT001", "OPT002"} <= skipped
    patient = run(dict.fromkeys(names, NotApplicable("evaluation only")))
    assert patient.why_not("OPT001") == patient.why_not("OPT002") == "evaluation only"
    patient = run(dict.fromkeys(names, 0))
    assert patient.findings("OPT002") == patient.findings("OPT003") == []


def test_with_a_critic_the_advantages_separate_missing_signal_from_broken() -> None:
    def finding(idle: float) -> Finding:
        curves = {**healthy(1), GRADIENT: 0.0, FLAT: 1.0, RIGHT: 0.5, WRONG: 0.5}
        records = steps(60, {**curves, "advantage/zero_rate": idle})
        return Patient(records, knobs={"advantage": "gae"}).finding("OPT001")

    assert "advantages are not zero" in finding(0.0).summary
    assert finding(0.0).remedies == ("check-loss-mask",)
    assert "no token has an advantage" in finding(1.0).summary


def test_single_prompts_without_spread_at_first_are_info() -> None:
    """A healthy public run, a prompt to a batch: no spread in up to half of the steps."""
    idle = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.9] + [0.9] * 40
    curves: dict[str, Curve] = {LOSS: 0.0, GRADIENT: 0.01, "groups/reward_std": idle}
    curves["reward/mean"] = noisy(0.5, 0.1, 1)
    assert Patient(steps(50, curves)).finding("OPT001").severity == "info"
    lasting: dict[str, Curve] = {**curves, "groups/reward_std": 0.0}
    assert Patient(steps(50, lasting)).finding("OPT001").severity == "warning"


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


def test_a_gradient_of_zero_where_the_rest_is_all_right_is_without_signal_and_not_unknown() -> None:
    curves: dict[str, Curve] = {
        "reward/mean": lambda step: 0.8 if step % 9 else 0.75,
        WRONG: 0.2,
        GRADIENT: lambda step: 0.0 if step % 9 else 0.4,
        LOSS: 0.01,
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert (finding.severity, "no group varies" in finding.summary) == ("info", True)


def test_a_loss_of_zero_with_a_reward_of_zero_is_without_signal() -> None:
    curves: dict[str, Curve] = {
        "reward/mean": lambda step: 0.25 if step % 8 == 0 else 0.0,
        LOSS: lambda step: -1.5 if step % 8 == 0 else 0.0,
    }
    assert "no group varies" in Patient(steps(60, curves)).finding("OPT001").summary


def test_a_gradient_of_one_step_alongside_the_groups_of_ten_is_no_fault() -> None:
    """A public run, logged every fifth step: zero in half of the logs, .7 of groups flat."""
    curves: dict[str, Curve] = {
        FLAT: [0.7, 0.8, 0.6, 0.9, 0.8, 0.7] * 10,
        GRADIENT: [0.0] * 50 + [0.4, 0.0] * 5,
        LOSS: 0.2,
        "reward/mean": noisy(0.8, 0.05, 1),
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert finding.severity == "info"
    assert "broken" not in finding.summary
    broken = Patient(steps(60, {**curves, FLAT: 0.2, GRADIENT: 0.0})).finding("OPT001")
    assert (broken.severity, "broken" in broken.summary) == ("critical", True)


def test_a_log_of_loss_and_reward_whose_batches_are_nearly_all_wrong_is_without_signal() -> None:
    """A script of one's own: one prompt to a batch, right now and then."""
    reward = [*[0.0] * 9, 0.25] * 10
    loss = [-2.0 if each else 0.0 for each in reward]
    plain = Patient(steps(100, {LOSS: loss, "reward/mean": reward}))
    assert plain.finding("OPT001").severity == "warning"
    half = [0.0, 0.25] * 50
    ordinary = Patient(steps(100, {LOSS: 0.0, "reward/mean": half}))
    assert {each.severity for each in ordinary.findings("OPT001")} <= {"info"}


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


def test_a_gradient_that_penalties_leave_is_not_called_alive() -> None:
    """A public run: reward max = min = -1, advantages 0, and a gradient of .005 from the KL."""
    curves: dict[str, Curve] = {
        "optimizer/grad_norm": 0.005,
        "optimizer/loss": 0.0,
        "reward/mean": -1.0,
        "advantage/max": 0.0,
        "advantage/min": 0.0,
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert finding.severity == "warning"
    assert "penalties alone" in finding.summary
    varying: dict[str, Curve] = {**curves, "advantage/max": 1.2, "advantage/min": -0.9}
    harmless = Patient(steps(60, varying)).finding("OPT001")
    assert "A loss of 0 is expected" in harmless.summary


@pytest.mark.parametrize(
    ("level", "remedies"),
    [(1.0, ("dynamic-sampling", "harder-prompts")), (0.0, ("recheck-reward", "easier-prompts"))],
)
def test_what_to_do_without_signal_depends_on_the_reward(
    level: float, remedies: tuple[str, ...]
) -> None:
    bounds = dict.fromkeys(("reward/max", "reward/min"), lambda step: level if step % 3 else 0.5)
    curves: dict[str, Curve] = {
        **bounds,
        "reward/mean": lambda step: level if step % 3 else 0.5,
        GRADIENT: lambda step: 0.0 if step % 3 else 0.2,
    }
    finding = Patient(steps(60, curves)).findings("OPT001")[-1]
    assert finding.remedies[:2] == remedies, finding.summary


def test_batches_with_signal_among_vanished_gradients_are_no_extreme_spikes() -> None:
    """A healthy agent run: nine gradients in ten near .01, the others up to 10, reward .93."""
    rng = random.Random(4)
    start = [3.0 + rng.random() for _ in range(20)]
    late = [rng.uniform(2, 9) if rng.random() < 0.08 else 0.01 * rng.random() for _ in range(400)]
    curves: dict[str, Curve] = {GRADIENT: start + late, "reward/mean": noisy(0.93, 0.01, 5)}
    found = Patient(steps(420, curves)).findings("OPT002")
    assert [each for each in found if each.severity != "info"] == []


def test_a_reward_that_is_missing_from_some_step_on_explains_a_zero_gradient() -> None:
    """A planted run: the reward function returns None for all responses from step 40 on."""
    curves: dict[str, Curve] = {
        GRADIENT: lambda step: 0.5 if step < 40 else 0.0,
        "reward/mean": lambda step: 0.4 if step < 40 else None,
        FLAT: lambda step: 0.1 if step < 40 else 0.0,
    }
    finding = Patient(steps(60, curves)).finding("OPT001")
    assert (finding.severity, finding.remedies) == ("critical", ("recheck-reward",))
    assert "the reward is missing since step 40" in finding.summary
    rare = {**curves, "reward/mean": lambda step: 0.4 if step % 4 == 0 and step < 40 else None}
    assert "missing" not in Patient(steps(60, rare)).finding("OPT001").summary


def test_a_loss_of_zero_with_an_entropy_that_repeats_trains_nothing() -> None:
    """A public script whose update does nothing: entropy 1, KL .0187, loss 0 in every row."""
    frozen: dict[str, Curve] = {LOSS: 0.0, "entropy/mean": 1.0, "reward/mean": noisy(0.7, 0.01, 3)}
    finding = Patient(steps(16, frozen)).finding("OPT001")
    assert (finding.severity, finding.active) == ("warning", True)
    assert "entropy exactly 1" in finding.summary
    sampled = {**frozen, "entropy/mean": noisy(1.0, 1e-4, 4)}
    assert {each.severity for each in Patient(steps(16, sampled)).findings("OPT001")} <= {"info"}


def test_a_loss_that_becomes_zero_without_success_is_a_warning() -> None:
    """A public script without gradient norms: the policy gives one answer from step 6 on."""
    loss = [-0.15, -0.15, 0.12, 0.06, 0.03, *[0.0] * 40]
    curves: dict[str, Curve] = {LOSS: loss, "reward/mean": noisy(0.0, 0.4, 3, low=-1.0)}
    finding = Patient(steps(30, curves)).finding("OPT001")
    assert finding.severity == "warning"
    assert "at the start it was" in finding.summary
    learned = {**curves, "reward/mean": ramp(0.1, 1.0, 10)}
    assert {each.severity for each in Patient(steps(30, learned)).findings("OPT001")} <= {"info"}
    centered = {**curves, LOSS: 0.0}
    assert {each.severity for each in Patient(steps(30, centered)).findings("OPT001")} <= {"info"}


def test_equal_rewards_at_the_highest_value_of_the_run_are_success() -> None:
    """Two components of at most 1 each: the reward rises to 2 and stays there."""
    curves: dict[str, Curve] = {
        "reward/mean": [1.2, 1.3, 1.25, 1.3, 1.4, 1.35, 1.3, 1.2, 1.4, 1.5, *[1.9, 2.0, 2.0] * 30],
        "groups/reward_std": 0.0,
        GRADIENT: 0.003,
        LOSS: 0.0,
    }
    finding = Patient(steps(80, curves)).finding("OPT001")
    assert finding.severity == "info"
    assert "solved" in finding.summary
    stuck: dict[str, Curve] = {**curves, "reward/component/task/mean": 0.0}
    assert "solved" not in Patient(steps(80, stuck)).finding("OPT001").summary


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
