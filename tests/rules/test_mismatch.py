from __future__ import annotations

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, healthy, noisy, ramp, steps
from tests.rules.scenario import altered as run
from tests.samples import sampled

MEAN, MAX = "mismatch/prob_diff_mean", "mismatch/prob_diff_max"
WORST_MEAN, WORST_MAX = f"{MEAN}/worst_sequence", f"{MAX}/worst_sequence"
OFF, GAP = "mismatch/first_ratio_off", "mismatch/nll_gap"
CODES = ("MIS001", "MIS002", "MIS003", "MIS004")


def quantised(mean: float, maximum: float) -> dict[str, Curve]:
    return {
        MEAN: noisy(mean, mean / 10, 1),
        MAX: noisy(maximum, maximum / 10, 2),
        WORST_MEAN: noisy(3 * mean, mean / 5, 3),
        WORST_MAX: noisy(min(1.0, 3 * maximum), maximum / 10, 4),
    }


@pytest.mark.parametrize(
    ("mean", "maximum"),
    [(0.0008, 0.022), (0.0014, 0.006), (0.0042, 0.12), (0.0063, 0.4)],
    ids=["bf16", "int8", "coarse cache", "long answers in bf16"],
)
def test_ordinary_engine_pairs_are_quiet(mean: float, maximum: float) -> None:
    patient = run(quantised(mean, maximum))
    assert [each.code for each in patient.alarms()] == []


def test_harm_is_a_warning_and_ruin_critical() -> None:
    harm = run(quantised(0.03, 0.13)).finding("MIS001")
    assert harm.severity == "warning"
    assert harm.evidence[-1].where == "step-000007/prompt-3/2"
    assert run(quantised(0.09, 0.5)).finding("MIS001").severity == "critical"


@pytest.mark.parametrize(
    ("name", "level"),
    [(MEAN, 0.05), ("mismatch/logprob_diff_mean", 0.2), ("mismatch/kl_k3", 0.1)],
)
def test_a_mismatch_is_dated_where_it_rose(name: str, level: float) -> None:
    """The median of twenty readings exceeds the threshold ten readings after the rise."""
    curves: dict[str, Curve] = {
        "reward/mean": 0.5,
        name: lambda step: level if step >= 40 else level / 100,
    }
    finding = Patient(steps(80, curves)).finding("MIS001")
    assert 38 <= finding.onset_step <= 42


@pytest.mark.parametrize("name", ["mismatch/kl_k1", "mismatch/kl_k3"])
@pytest.mark.parametrize(
    ("level", "severity"), [(0.001, None), (0.009, None), (0.035, "warning"), (0.2, "critical")]
)
def test_a_log_that_knows_the_divergence_alone(name: str, level: float, severity: str) -> None:
    """As tinker-cookbook, prime-rl and OpenRLHF log it."""
    curves: dict[str, Curve] = {name: noisy(level, level / 10, 1)}
    found = Patient(steps(60, {"reward/mean": 0.5, **curves})).findings("MIS001")
    assert [each.severity for each in found] == ([severity] if severity else [])
    assert all(each.evidence[0].metric == name for each in found)


def test_a_divergence_that_is_corrected_for_is_info_and_one_alongside_probabilities_none() -> None:
    curves: dict[str, Curve] = {"mismatch/kl_k3": noisy(0.04, 0.004, 1)}
    without = (MEAN, MAX, WORST_MEAN, WORST_MAX)
    finding = run(curves, without=without, knobs={"correction": "tis_token"}).finding("MIS001")
    assert finding.severity == "info"
    assert "tis_token corrects for it" in finding.summary
    assert run({**quantised(0.001, 0.03), **curves}).findings("MIS001") == []


def test_a_subset_that_the_mean_hides_is_seen_in_the_worst_response() -> None:
    curves = {**quantised(0.001, 0.03), WORST_MEAN: noisy(0.2, 0.02, 5)}
    finding = run(curves).finding("MIS001")
    assert finding.severity == "warning"
    assert finding.summary.startswith("One response differs")


def test_the_worst_token_is_compared_with_its_own_start() -> None:
    grown = noisy(ramp(0.15, 0.8, 20, begin=20), 0.03, 6)
    assert ", up from 0." in run({WORST_MAX: grown}).finding("MIS001").summary
    assert run({WORST_MAX: noisy(0.9, 0.05, 6)}).findings("MIS001") == []


def test_the_settings_decide_which_remedy_comes_first() -> None:
    sick = quantised(0.03, 0.13)
    assert run(sick).finding("MIS001").remedies[0] == "tis"
    stale = run(sick, knobs={"sampler_sync_every": 16}).finding("MIS001")
    assert stale.remedies[0] == "sync-sampler"
    bypassed = run(sick, knobs={"old_logprobs": "sampler"}).finding("MIS001")
    assert bypassed.remedies[0] == "recompute-old-logprobs"


def test_the_samplers_log_probabilities_as_old_policy_are_critical_at_once() -> None:
    """int4 with the sampler's log-probabilities: dead within twenty steps in every seed."""
    curves = {**quantised(0.036, 0.11), OFF: noisy(0.9, 0.02, 7)}
    patient = run(curves, count=5, knobs={"old_logprobs": "sampler"})
    finding = patient.finding("MIS002")
    assert (finding.severity, finding.onset_step) == ("critical", 0)
    assert finding.remedies == ("recompute-old-logprobs", "tis")


def test_leaving_out_the_recomputation_with_engines_that_agree_is_info() -> None:
    finding = run({OFF: noisy(0.6, 0.05, 7)}).finding("MIS002")
    assert finding.severity == "info"


def test_ratios_off_without_any_measure_of_the_sampler_are_a_warning() -> None:
    without = tuple(name for name in healthy(1) if name.startswith("mismatch/") and name != OFF)
    assert run({OFF: 0.6}, without=without).finding("MIS002").severity == "warning"


def test_a_learner_that_disagrees_with_itself_and_clips_is_critical() -> None:
    """An off-by-one in the record: ratios far off, most tokens clipped, no mismatch to see."""
    curves: dict[str, Curve] = {OFF: 0.95, "clip/low_rate": 0.3, "clip/high_rate": 0.3}
    finding = run(curves, knobs={"old_logprobs": "recompute"}).finding("MIS002")
    assert finding.severity == "critical"
    assert "learner recomputes" in finding.summary
    assert finding.remedies == ("check-loss-mask",)


@pytest.mark.parametrize(("off", "severity"), [(0.5, "warning"), (0.05, "info")])
def test_recomputed_log_probabilities_of_another_model_are_a_warning(
    off: float, severity: str
) -> None:
    """A copy that is not refreshed: sampler and learner agree, and the ratios are wrong."""
    finding = run({OFF: off}, knobs={"old_logprobs": "recompute"}).finding("MIS002")
    assert (finding.severity, finding.remedies) == (severity, ("check-loss-mask",))


def test_exactly_zero_off_is_health() -> None:
    assert run({OFF: 0}).findings("MIS002") == []


@pytest.mark.parametrize(
    ("gap", "severity", "kind"),
    [
        (-0.11, "warning", "sharper"),
        (0.07, "warning", "stale, quantized or runs at a higher temperature"),
        (0.37, "critical", "stale, quantized or runs at a higher temperature"),
        (0.045, "info", "stale, quantized or runs at a higher temperature"),
    ],
    ids=["temperature .7", "int4", "int3", "slightly stale"],
)
def test_samples_from_another_policy(gap: float, severity: str, kind: str) -> None:
    finding = run({GAP: noisy(gap, 0.016, 8, low=-9)}).finding("MIS003")
    assert finding.severity == severity
    assert kind in finding.summary
    assert (finding.remedies[0] == "one-temperature") == (gap < 0)


@pytest.mark.parametrize("seed", sampled(range(10), 9))
def test_the_noise_of_the_gap_is_quiet(seed: int) -> None:
    assert run({GAP: noisy(0.002, 0.016, seed, low=-9)}, count=300).findings("MIS003") == []
    small = noisy(0.0, 0.1, seed, low=-9)  # few and short responses
    assert [f for f in run({GAP: small}, count=300).alarms() if f.code == "MIS003"] == []


def test_selection_of_groups_has_a_wider_band() -> None:
    """Dynamic sampling moves the gap to +.018; a little more is still its doing."""
    curves: dict[str, Curve] = {GAP: noisy(0.045, 0.01, 9, low=-9)}
    assert run(curves).finding("MIS003").severity == "info"
    assert run({**curves, "groups/generated_per_kept": 2.4}).findings("MIS003") == []
    assert run(curves, knobs={"dynamic_sampling": True}).findings("MIS003") == []


def test_growth_is_found_against_the_own_start() -> None:
    """fp8 by tensor goes from .010 to .031 in KL; bf16 from .0063 to .0089."""
    kl = "mismatch/kl_k3"
    without = (MEAN, "mismatch/logprob_diff_mean")
    bad = run({kl: noisy(ramp(0.010, 0.031, 60, begin=10), 0.0005, 1)}, without=without, count=90)
    assert bad.finding("MIS004").severity == "warning"
    good = run({kl: noisy(ramp(0.0063, 0.0089, 60), 0.0005, 1)}, without=without, count=90)
    assert good.findings("MIS004") == []


@pytest.mark.parametrize("turns", [1.0, 3.0])
def test_a_level_mismatch_in_an_agentic_run_names_the_loss_mask(turns: float) -> None:
    curves: dict[str, Curve] = {
        MEAN: noisy(ramp(0.005, 0.04, 60, begin=10), 0.001, 1),
        "environment/turns_mean": turns,
    }
    finding = run(curves, without=("optimizer/environment_token_rate",), count=90).finding("MIS001")
    assert ("the loss includes tool output" in finding.summary) == (turns > 1)
    assert ("mask-environment-tokens" in finding.remedies) == (turns > 1)


def test_growth_in_an_agentic_run_names_the_loss_mask() -> None:
    kl, without = "mismatch/kl_k3", (MEAN, "mismatch/logprob_diff_mean")
    growing: dict[str, Curve] = {kl: noisy(ramp(0.010, 0.031, 60, begin=10), 0.0005, 1)}
    for more, is_named in (
        ({"environment/turns_mean": 3.0}, True),
        ({"tools/calls_per_response": 0.8}, True),
        ({"environment/turns_mean": 1.0}, False),
        ({"environment/turns_mean": 3.0, "optimizer/environment_token_rate": 0.0}, False),
    ):
        finding = run({**growing, **more}, without=without, count=90).finding("MIS004")
        assert ("the loss includes tool output" in finding.summary) == is_named
        assert ("mask-environment-tokens" in (finding.remedies or ())) == is_named
        assert finding.remedies[0] == "sync-sampler"


def test_growth_below_the_noise_of_engines_is_quiet() -> None:
    assert run({MEAN: noisy(ramp(0.0002, 0.002, 40), 0.0001, 1)}).findings("MIS004") == []


def test_a_sawtooth_of_a_stale_sampler_is_found_by_the_gap() -> None:
    curves: dict[str, Curve] = {
        GAP: noisy(lambda step: 0.02 * (step % 16), 0.016, 2, low=-9),
        MEAN: noisy(lambda step: 0.006 * (step % 16), 0.002, 3),
    }
    patient = run(curves, knobs={"sampler_sync_every": 16}, count=100)
    assert patient.findings("MIS003")[0].severity == "warning"
    assert patient.finding("MIS001").remedies[0] == "sync-sampler"


@pytest.mark.parametrize("code", CODES)
def test_absent_zero_and_not_applicable(code: str) -> None:
    names = tuple(name for name in healthy(1) if name.startswith(("mismatch/", "ratio/", "clip/")))
    patient = run({}, without=names)
    (skipped,) = [each for each in patient.engine.diagnosis().skipped if each.code == code]
    assert skipped.how
    assert run(dict.fromkeys(names, 0)).findings(code) == []
    patient = run(dict.fromkeys(names, NotApplicable("the learner samples")))
    assert patient.why_not(code) == "the learner samples"


LOGPROBS, WEIGHT = "mismatch/logprob_diff_mean", "correction/weight_mean"


def only(name: str, curve: Curve, **knobs: Setting) -> Patient:
    return Patient(steps(60, {name: curve, "reward/mean": 0.5}), knobs=knobs)


@pytest.mark.parametrize(
    ("level", "severity"), [(0.004, None), (0.02, None), (0.055, "warning"), (0.25, "critical")]
)
def test_a_difference_in_log_probability_is_judged(level: float, severity: str | None) -> None:
    found = only(LOGPROBS, noisy(level, level / 10, 1)).findings("MIS001")
    assert [each.severity for each in found] == ([severity] if severity else [])


def test_weights_that_differ_from_one_from_the_start_are_evidence() -> None:
    finding = only(WEIGHT, noisy(0.8, 0.01, 1), correction="tis_token").finding("MIS001")
    assert finding.severity == "warning"
    assert "0.80 instead of 1" in finding.summary
    assert only(WEIGHT, noisy(0.99, 0.01, 1), correction="tis_token").findings("MIS001") == []
    assert only(WEIGHT, noisy(0.8, 0.1, 1), correction="tis_sequence").findings("MIS001") == []
    falling = noisy(ramp(1.0, 0.7, 40, begin=20), 0.01, 2)
    assert only(WEIGHT, falling, correction="tis_token").findings("MIS001") == []


@pytest.mark.parametrize(
    ("framework", "level", "severity"),
    [
        ("areal", 0.71, "warning"),  # its weights are per token in all modes
        ("areal", 0.95, None),
        ("trl", 0.71, "info"),
        ("trl", 0.95, None),
        ("trl", 0.4, "warning"),
        ("", 0.71, "info"),
    ],
)
def test_weights_are_judged_by_what_the_framework_weights(
    framework: str, level: float, severity: str | None
) -> None:
    curves: dict[str, Curve] = {WEIGHT: noisy(level, 0.01, 1), "reward/mean": 0.5}
    found = Patient(steps(60, curves), framework=framework).findings("MIS001")
    assert [each.severity for each in found] == ([severity] if severity else [])
    for finding in found:
        assert finding.onset_step == 0
        assert ("if it weights tokens" in finding.summary) == (severity == "info")
        assert "recompute-old-logprobs" not in finding.remedies  # the weight is made of them
