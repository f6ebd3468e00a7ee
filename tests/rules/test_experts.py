"""Family MOE: routing that differs, churns, concentrates, hardens, or is replayed in vain."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, every, healthy, noisy, ramp, steps
from tests.samples import sampled

DATA = Path(__file__).parent / "data"
LAYERS = 4
TOKEN_CLIP: dict[str, Setting] = {"loss": "ppo_clip", "routing_replay": "none"}


def routed(seed: int, **changed: Curve) -> dict[str, Curve]:
    """A healthy mixture: levels and scatter of the reference runs with eight experts."""
    figures: dict[str, Curve] = {
        "churn_update": noisy(0.0022, 0.0016, 7 * seed),
        "churn_engine": noisy(0.002, 0.0016, 7 * seed + 1),
        "tokens_with_any_flip": noisy(0.008, 0.006, 7 * seed + 2),
        "load_max_over_mean": noisy(2.65, 0.07, 7 * seed + 3),
        "router_entropy": noisy(ramp(0.7, 0.8, 80), 0.03, 7 * seed + 4),
        "router_margin": noisy(1.25, 0.05, 7 * seed + 5),
        **changed,
    }
    layered = ("churn_update", "churn_engine", "load_max_over_mean", "router_entropy")
    curves: dict[str, Curve] = {f"experts/{name}": curve for name, curve in figures.items()}
    for name in layered:
        for layer in range(LAYERS):
            curves.setdefault(f"experts/{name}/layer/{layer}", figures[name])
    return {**healthy(seed), **curves}


def run(curves: dict[str, Curve], count: int = 100, **knobs: Setting) -> Patient:
    return Patient(steps(count, curves), knobs={**TOKEN_CLIP, **knobs})


def expert_codes(patient: Patient) -> set[str]:
    return {each.code for each in patient.engine.diagnosis().findings if each.code[:3] == "MOE"}


@pytest.mark.parametrize("seed", sampled(range(8), 3))
def test_a_healthy_mixture_raises_nothing(seed: int) -> None:
    patient = run(routed(seed), 150)
    assert patient.alarms() == []
    assert expert_codes(patient) == set()


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_mixture_that_is_looked_at_now_and_then(seed: int) -> None:
    curves = {
        name: every(5, curve) if name.startswith("experts/") else curve
        for name, curve in routed(seed).items()
    }
    assert expert_codes(run(curves, 400)) == set()


def test_a_dense_run_is_reported_as_dense() -> None:
    dense = NotApplicable("the model is dense")
    curves = routed(1)
    curves |= {name: dense for name in curves if name.startswith("experts/")}
    curves |= {"experts/replay_coverage": dense, "experts/replay_agreement": dense}
    patient = run(curves, 10)
    for number in range(1, 6):
        assert patient.why_not(f"MOE00{number}") == "the model is dense"


def test_a_log_without_routing_says_how_to_record_it() -> None:
    skipped = {each.code: each for each in run(healthy(1), 5).engine.diagnosis().skipped}
    assert all("expert" in skipped[f"MOE00{n}"].how for n in range(1, 5))


@pytest.mark.parametrize(
    ("level", "difference", "severity"),
    [
        (0.02, 0.025, "info"),
        (0.045, 0.001, "info"),
        (0.045, 0.025, "warning"),
        (0.045, NotApplicable("the sampler tells none"), "warning"),
        (0.3, 0.2, "warning"),
    ],
)
def test_engines_that_route_differently(level: float, difference: Curve, severity: str) -> None:
    curves = routed(1, churn_engine=noisy(level, 0.003, 5))
    patient = run(curves | {"mismatch/prob_diff_mean": difference})
    finding = patient.finding("MOE001")
    assert (finding.severity, finding.onset_step) == (severity, 0)
    assert finding.remedies == ("routing-replay", "higher-precision-sampler", "gspo")
    assert "in layer" in finding.summary
    assert {each.metric for each in finding.evidence} >= {
        "experts/churn_engine",
        "experts/tokens_with_any_flip",
    }


def test_flips_that_grow_are_a_warning_before_they_are_many() -> None:
    grows = noisy(ramp(0.002, 0.024, 60, begin=20), 0.001, 3)
    finding = run(routed(1, churn_engine=grows)).finding("MOE001")
    assert finding.severity == "warning"
    assert ", up from 0." in finding.summary


def test_nearly_every_token_with_a_flip_is_a_warning_without_any_share() -> None:
    curves = {k: v for k, v in routed(1).items() if "churn_engine" not in k}
    curves["experts/tokens_with_any_flip"] = noisy(0.94, 0.01, 3)
    finding = run(curves).finding("MOE001")
    assert finding.severity == "warning"
    assert finding.summary.startswith("94%")
    curves["experts/tokens_with_any_flip"] = noisy(0.6, 0.01, 3)
    assert run(curves).findings("MOE001") == []


def test_a_replay_that_leaves_flips_is_to_be_looked_into() -> None:
    flips = noisy(0.045, 0.003, 5)
    replayed = run(routed(1, churn_engine=flips), routing_replay="R3").finding("MOE001")
    assert replayed.remedies == ("check-routing-replay",)
    whole = run(routed(1, churn_engine=flips), loss="gspo").finding("MOE001")
    assert whole.remedies == ("routing-replay", "higher-precision-sampler")


@pytest.mark.parametrize("level", [0.07, 0.12])
def test_experts_that_churn(level: float) -> None:
    finding = run(routed(2, churn_update=noisy(level, 0.01, 1))).finding("MOE002")
    assert (finding.severity, finding.onset_step) == ("warning", 0)
    assert finding.remedies == ("gspo", "routing-replay", "lower-learning-rate")


def test_churn_that_grows_beyond_the_start_of_the_run() -> None:
    grows = noisy(ramp(0.002, 0.03, 40, begin=30), 0.002, 1)
    finding = run(routed(2, churn_update=grows)).finding("MOE002")
    assert finding.severity == "warning"
    assert 30 < finding.onset_step < 70
    assert ", up from 0." in finding.summary


@pytest.mark.parametrize(
    "knobs", [{"loss": "gspo"}, {"loss": "rspo"}, {"routing_replay": "R2"}], ids=str
)
def test_churn_that_is_tolerated_is_info(knobs: dict[str, Setting]) -> None:
    finding = run(routed(2, churn_update=noisy(0.1, 0.01, 1)), **knobs).finding("MOE002")
    assert finding.severity == "info"
    assert "tolerates it" in finding.summary
    assert finding.remedies == ()


def test_a_load_that_concentrates() -> None:
    grows = noisy(ramp(2.65, 3.8, 50, begin=20), 0.07, 1)
    finding = run(routed(3, load_max_over_mean=grows)).finding("MOE003")
    assert finding.severity == "warning"
    assert finding.remedies[0] == "balance-experts"
    assert "up from 2.7" in finding.summary or "up from 2.6" in finding.summary


def test_one_layer_that_concentrates_is_named() -> None:
    curves = routed(3)
    curves["experts/load_max_over_mean/layer/2"] = noisy(ramp(2.0, 4.0, 50, begin=20), 0.07, 1)
    finding = run(curves).finding("MOE003")
    assert "of layer 2" in finding.summary
    assert any(each.metric.endswith("layer/2") for each in finding.evidence)


def test_a_nearly_even_load_may_double_its_little_excess() -> None:
    grows = noisy(ramp(1.1, 1.4, 50, begin=20), 0.02, 1)
    assert run(routed(3, load_max_over_mean=grows)).findings("MOE003") == []


def test_routers_that_become_deterministic_are_judged_by_their_load() -> None:
    falls = noisy(ramp(0.7, 0.1, 60, begin=15), 0.03, 1)
    even = run(routed(4, router_entropy=falls)).finding("MOE004")
    assert (even.severity, even.remedies) == ("info", ())
    assert "as even as before" in even.summary
    loads = noisy(ramp(2.65, 3.8, 40, begin=15), 0.07, 1)
    uneven = run(routed(4, router_entropy=falls, load_max_over_mean=loads)).finding("MOE004")
    assert uneven.severity == "warning"
    assert uneven.remedies[0] == "balance-experts"


def test_routers_that_become_deterministic_from_the_first_step_on() -> None:
    falls = noisy(ramp(0.7, 0.05, 60), 0.02, 1)
    assert run(routed(4, router_entropy=falls)).finding("MOE004").onset_step < 60


@pytest.mark.parametrize(
    ("coverage", "agreement", "severity"),
    [
        (0.995, 1.0, "info"),
        (0.9, 1.0, "warning"),
        (0.0, 1.0, "warning"),
        (1.0, 0.97, "warning"),
        (1.0, 0.5, "critical"),
    ],
)
def test_a_replay_in_vain(coverage: float, agreement: float, severity: str) -> None:
    curves = routed(5) | {
        "experts/replay_coverage": coverage,
        "experts/replay_agreement": agreement,
        **{f"experts/replay_coverage/layer/{n}": coverage for n in range(LAYERS)},
        "experts/replay_agreement/layer/0": 1.0,
        "experts/replay_agreement/layer/1": 2 * agreement - 1,
    }
    finding = run(curves, 20, routing_replay="R3").finding("MOE005")
    assert (finding.severity, finding.remedies) == (severity, ("check-routing-replay",))
    if agreement < 1:
        assert "layer 1 is the worst" in finding.summary


def test_a_replay_that_works_and_none_at_all_are_quiet() -> None:
    whole: dict[str, Curve] = {"experts/replay_coverage": 1.0, "experts/replay_agreement": 1.0}
    assert run(routed(5) | whole, 30, routing_replay="R3").findings("MOE005") == []
    none = NotApplicable("no routing is replayed")
    without = run(routed(5) | dict.fromkeys(whole, none), 10)
    assert without.why_not("MOE005") == "no routing is replayed"


@pytest.mark.parametrize(
    ("fallback", "severity"), [(0.0, None), (0.0005, None), (0.005, "info"), (0.45, "warning")]
)
def test_routes_that_fall_back_are_missing(fallback: float, severity: str | None) -> None:
    """NeMo RL logs the share of routes for which the learner used its own routing."""
    curves = routed(5) | {"experts/replay_fallback_rate": fallback}
    found = run(curves, 20, routing_replay="R3").findings("MOE005")
    assert [each.severity for each in found] == ([severity] if severity else [])
    counted = run(curves | {"experts/replay_coverage": 1.0}, 20, routing_replay="R3")
    assert counted.findings("MOE005") == []


def test_one_step_without_routes_is_no_finding() -> None:
    def coverage(step: int) -> float:
        return 0.9 if step == 12 else 1.0

    assert run(routed(5) | {"experts/replay_coverage": coverage}, 30).findings("MOE005") == []


def recorded(name: str, **knobs: Setting) -> Patient:
    """The routing of a real run, trimmed; `tests/benchmarks/calibrate_rules.py` makes such runs."""
    lines = (DATA / f"{name}.jsonl").read_bytes().splitlines()
    return Patient(map(StepRecord.from_line, lines), knobs={**TOKEN_CLIP, **knobs})


def test_a_real_mixture_with_a_coarser_sampler_is_quiet() -> None:
    assert expert_codes(recorded("healthy_mixture")) == set()


def test_a_real_load_that_is_drawn_to_one_expert() -> None:
    finding = recorded("overloaded_routers").finding("MOE003")
    assert finding.severity == "warning"
    assert 45 <= finding.onset_step <= 58


def test_real_updates_that_are_too_large_churn_from_the_first_step() -> None:
    finding = recorded("churning_experts").finding("MOE002")
    assert (finding.severity, finding.onset_step) == ("warning", 1)
    assert finding.remedies[0] == "gspo"


def test_a_real_replay_that_loses_routes_or_is_not_obeyed() -> None:
    lost = recorded("lost_routes", routing_replay="R3").finding("MOE005")
    assert (lost.severity, lost.onset_step) == ("warning", 2)
    assert "of the routes to replay were recorded" in lost.summary
    assert "layer" not in lost.summary, "all layers lose as many"
    wrong = recorded("disobedient_replay", routing_replay="R3")
    assert wrong.finding("MOE005").severity == "critical"
    assert "layer 1 is the worst" in wrong.finding("MOE005").summary
    assert wrong.finding("MOE001").remedies == ("check-routing-replay",)
    assert wrong.engine.diagnosis().findings[0].code == "MOE005"
