"""Causes that other findings hid: the finding names the cause, not its most visible effect."""

from __future__ import annotations

import pytest

from grpodoctor.vocabulary.knobs import Setting
from tests.rules.scenario import Curve, Patient, noisy, ramp, steps

PROB, LOGPROB = "mismatch/prob_diff_mean", "mismatch/logprob_diff_mean"
AGE, TRUNCATED, LENGTH = "staleness/mean", "length/truncated_rate", "length/mean"
OLD, REFERENCE = "kl/old_policy/k3", "kl/reference/k3"
IN_LOSS, TURNS = "optimizer/response_in_loss_rate", "environment/turns_mean"
FLAT = "groups/zero_variance_rate"


def run(
    curves: dict[str, Curve],
    *,
    count: int = 60,
    knobs: dict[str, Setting] | None = None,
    framework: str = "verl",
    config: dict[str, Setting] | None = None,
) -> Patient:
    level: dict[str, Curve] = {"reward/mean": noisy(0.4, 0.03, 9)}
    records = steps(count, {**level, **curves})
    return Patient(records, knobs=knobs, framework=framework, config=config)


def growing(step: int) -> float:
    return 0.0005 + 0.0016 * step


@pytest.mark.parametrize(
    "curves",
    [
        {"reward/mean": noisy(ramp(0.3, 0.7, 60), 0.03, 2)},
        {LENGTH: noisy(ramp(600, 2400, 60), 30, 3)},
        {AGE: ramp(1, 12, 60)},
    ],
)
def test_weights_that_arrive_late_or_write_other_samples_are_delivered(
    curves: dict[str, Curve],
) -> None:
    grown: dict[str, Curve] = {PROB: noisy(growing, 0.002, 1)}
    assert run(grown).finding("SYN002").severity == "critical"
    assert run({**grown, AGE: 0.0}).finding("SYN002").severity == "critical"
    judged = run({**grown, **curves})
    assert judged.findings("SYN002") == []
    assert judged.findings("MIS001")


def test_a_gap_that_the_first_step_has_is_one_of_the_distribution() -> None:
    finding = run({LOGPROB: noisy(0.16, 0.01, 1)}).finding("MIS001")
    assert "from the first step on: compare temperature" in finding.summary
    assert finding.remedies[0] == "one-temperature"
    assert "sync-sampler" not in finding.remedies


@pytest.mark.parametrize(
    ("correction", "first"), [("none", "tis"), ("tis_token", "higher-precision-sampler")]
)
@pytest.mark.parametrize("level", [0.05, 0.16])
def test_a_gap_of_a_quantized_sampler_is_one_of_its_precision(
    level: float, correction: str, first: str
) -> None:
    finding = run(
        {LOGPROB: noisy(level, 0.004, 1)},
        knobs={"old_logprobs": "recompute", "correction": correction},
        config={"actor_rollout_ref.rollout.quantization": "fp8"},
    ).finding("MIS001")
    assert finding.remedies[0] == first
    if finding.severity != "info":  # a correction that holds makes it one
        assert "from the first step on: the sampler is quantized" in finding.summary
        assert finding.remedies.index(first) < finding.remedies.index("one-temperature")
    plain = run({LOGPROB: noisy(level, 0.004, 1)}, knobs={"correction": correction})
    assert "higher-precision-sampler" not in plain.finding("MIS001").remedies


@pytest.mark.parametrize(("name", "level"), [(LOGPROB, 1.9), (PROB, 0.31)])
def test_a_gap_beyond_any_precision_is_misaligned(name: str, level: float) -> None:
    finding = run({name: noisy(level, 0.01, 1)}).finding("MIS001")
    assert "misaligned" in finding.summary
    assert (finding.severity, finding.remedies[0]) == ("critical", "check-loss-mask")


def test_a_gap_that_grows_or_that_experts_have_is_left_as_it_is() -> None:
    for curve in (ramp(0.01, 0.3, 50), noisy(0.05, 0.004, 1)):
        finding = run({LOGPROB: curve}).finding("MIS001")
        assert "first step" not in finding.summary


def test_episodes_of_several_turns_without_a_masked_token() -> None:
    finding = run({IN_LOSS: 1.0, TURNS: noisy(3.8, 0.2, 1)}).finding("DAT001")
    assert (finding.severity, finding.onset_step) == ("critical", 0)
    assert finding.remedies[0] == "mask-environment-tokens"


@pytest.mark.parametrize(("share", "turns"), [(0.45, 3.8), (1.0, 1.0)])
def test_masked_observations_or_single_turns_are_quiet(share: float, turns: float) -> None:
    assert run({IN_LOSS: share, TURNS: turns}).findings("DAT001") == []


def test_advantages_at_zero_are_centred_though_the_reward_fell_close_to_them() -> None:
    fallen = noisy(ramp(0.75, 0.05, 1, begin=40), 0.02, 1)
    curves: dict[str, Curve] = {"reward/mean": fallen, "advantage/mean": noisy(0, 1e-9, 2, low=-1)}
    assert run(curves).findings("GRP005") == []
    assert run({**curves, "advantage/mean": fallen}).findings("GRP005")


def test_responses_that_never_end_need_an_end_token_before_a_longer_limit() -> None:
    endless: dict[str, Curve] = {TRUNCATED: 1.0, LENGTH: 2048, "reward/mean": 0.0}
    finding = run(endless).finding("LEN002")
    assert "end token" in finding.summary
    assert finding.remedies == ("check-end-token", "longer-limit")
    rising = run({**endless, "reward/mean": noisy(ramp(0.3, 0.7, 60), 0.03, 1)})
    assert "padding" in rising.finding("LEN002").summary


def test_most_responses_truncated_or_a_short_limit_need_a_longer_one() -> None:
    for curves in ({TRUNCATED: 0.96, LENGTH: 2000}, {TRUNCATED: 1.0, LENGTH: 256}):
        finding = run({**curves, "reward/mean": 0.02}).finding("LEN002")
        assert finding.remedies[0] == "longer-limit"


def test_a_large_growth_of_length_needs_more_than_a_trace_of_reward() -> None:
    longer: dict[str, Curve] = {LENGTH: noisy(ramp(600, 3600, 80), 40, 1)}
    flat = run({**longer, "reward/mean": noisy(ramp(0.49, 0.51, 80), 0.03, 4)}, count=100)
    assert flat.finding("LEN004").severity == "warning"
    rising = run({**longer, "reward/mean": noisy(ramp(0.3, 0.7, 80), 0.03, 4)}, count=100)
    assert rising.findings("LEN004") == []


def test_a_clip_without_movement_has_narrow_bounds() -> None:
    curves: dict[str, Curve] = {"clip/any_rate": noisy(0.44, 0.02, 1), OLD: 2e-4}
    finding = run(curves).finding("CLP001")
    assert "the bounds are within ±0.03" in finding.summary
    assert finding.remedies == ("clip-higher",)
    known = run(curves, knobs={"clip_low": 0.0003, "clip_high": 0.0003}).finding("CLP001")
    assert "the bounds are ±0.0003" in known.summary
    wide = run({**curves, OLD: 0.06}).finding("CLP001")
    assert "bounds" not in wide.summary


def test_many_updates_of_an_ordinary_rate_are_too_many() -> None:
    curves: dict[str, Curve] = {
        "clip/any_rate": noisy(0.25, 0.02, 1), OLD: noisy(0.06, 0.005, 2),
        "optimizer/learning_rate": 1e-6, "reward/mean": noisy(ramp(0.5, 0.35, 60), 0.01, 3),
    }  # fmt: skip
    finding = run(curves, knobs={"updates_per_batch": 64}).findings("OPT006")[-1]
    assert "64 updates per batch" in finding.summary
    assert finding.remedies[0] == "fewer-updates"
    few = run(curves, knobs={"updates_per_batch": 4}).findings("OPT006")[-1]
    assert few.remedies[0] == "lower-learning-rate"


def test_a_lost_reward_makes_half_a_nat_a_drift() -> None:
    far: dict[str, Curve] = {REFERENCE: ramp(0.001, 0.6, 50)}
    lost = run({**far, "reward/mean": noisy(ramp(0.6, 0.2, 20, begin=30), 0.02, 1)})
    assert lost.findings("KLD002")[-1].severity == "warning"
    assert run(far).findings("KLD002") == []


def test_a_fall_beyond_what_one_update_can_do_came_from_outside() -> None:
    fallen: dict[str, Curve] = {
        "accuracy/train": noisy(ramp(0.75, 0.05, 1, begin=40), 0.02, 1), LENGTH: 700,
        "kl/old_policy/k2": 3e-4, "entropy/mean": noisy(0.3, 0.01, 2),
    }  # fmt: skip
    outside = run(fallen, count=80).findings("REW002")
    assert any("environment or verifier changed" in each.summary for each in outside)
    inside = run({**fallen, "kl/old_policy/k2": 0.01}, count=80).findings("REW002")
    assert not any("verifier" in each.summary for each in inside)


def test_only_the_form_is_earned_is_not_solved() -> None:
    components: dict[str, Curve] = {
        "reward/mean": noisy(ramp(0.1, 0.985, 40), 0.005, 1),
        "reward/component/MathAccuracy/mean": 0.0,
        "reward/component/Format/mean": noisy(ramp(0.1, 0.985, 40), 0.005, 1),
        FLAT: ramp(0.3, 0.93, 40),
    }
    judged = run(components, count=80)
    assert judged.findings("GRP001") == []
    assert judged.finding("REW004").severity == "warning"


def test_a_stall_without_entropy_and_signal_is_a_collapse() -> None:
    curves: dict[str, Curve] = {
        "entropy/mean": ramp(0.42, 0.012, 30), FLAT: noisy(0.96, 0.005, 1),
        "reward/mean": noisy(ramp(0.48, 0.58, 25), 0.02, 2),
    }  # fmt: skip
    assert run(curves, count=140).findings("ENT001")[-1].severity == "warning"
    learned = {**curves, "reward/mean": noisy(ramp(0.48, 0.85, 25), 0.02, 2)}
    assert run(learned, count=140).findings("ENT001")[-1].severity == "info"


@pytest.mark.parametrize(("framework", "severity"), [("nemo-rl", "warning"), ("trl", "info")])
def test_a_weight_that_is_logged_in_any_case_is_no_correction(
    framework: str, severity: str
) -> None:
    curves: dict[str, Curve] = {LOGPROB: ramp(0.01, 0.12, 50), "correction/weight_mean": 1.0}
    finding = run(curves, framework=framework).finding("MIS001")
    assert finding.severity == severity
    assert ("tis" in finding.remedies) == (framework == "nemo-rl")
