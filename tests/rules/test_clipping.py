from __future__ import annotations

import pytest

from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import NotApplicable
from tests.rules.scenario import Curve, Patient, noisy, ramp, steps
from tests.rules.scenario import altered as run

LOW, HIGH, KL, UPDATES = "clip/low_rate", "clip/high_rate", "kl/old_policy/k3", "updates_per_batch"


def clipped(low: float, high: float, kl: float) -> dict[str, Curve]:
    return {
        LOW: noisy(low, low / 10, 1),
        HIGH: noisy(high, high / 10, 2),
        KL: noisy(kl, kl / 10, 3),
    }


@pytest.mark.parametrize(
    ("low", "high", "kl"),
    [(0.003, 0.001, 0.001), (0.015, 0.019, 0.003), (0.014, 0.0, 0.004)],
    ids=["one pass", "sixteen cautious updates", "the same with a high upper clip"],
)
def test_ordinary_clipping_is_quiet(low: float, high: float, kl: float) -> None:
    assert run(clipped(low, high, kl)).findings("CLP001") == []


def test_over_updating_is_found() -> None:
    """16 updates on a batch at the full learning rate: .045 clipped, a KL of .021 a batch."""
    finding = run(clipped(0.030, 0.015, 0.021)).finding("CLP001")
    assert finding.severity == "warning"
    assert finding.remedies[0] == "fewer-updates"


def test_a_large_share_needs_no_other_evidence() -> None:
    finding = run(clipped(0.01, 0.15, 0.001), without=(KL,)).finding("CLP001")
    assert finding.remedies[0] == "clip-higher"


def test_a_log_that_does_not_separate_the_sides_is_judged_by_their_sum() -> None:
    both = {"clip/any_rate": noisy(0.16, 0.016, 4)}
    alone = run(both, without=(LOW, HIGH, KL)).finding("CLP001")
    assert "16" in alone.summary.split("%")[0]
    assert alone.remedies[0] == "fewer-updates"
    beside = {**clipped(0.005, 0.002, 0.001), **both}  # the sum is none besides its parts
    assert run(beside).findings("CLP001") == []


def test_a_share_that_grows_while_the_run_improves_is_a_note() -> None:
    """Public runs that come to clip .11 to .16 of their tokens multiply their reward."""
    improved = {"accuracy/train": noisy(ramp(0.2, 0.5, 40), 0.02, 1)}
    grown = noisy(ramp(0.01, 0.16, 30, begin=10), 0.002, 4)
    share: dict[str, Curve] = {"clip/any_rate": grown, **improved}
    assert run(share, without=(LOW, HIGH, KL)).finding("CLP001").severity == "info"
    for changed in (
        {KL: noisy(0.03, 0.003, 3)},  # the policy moves far
        {"accuracy/train": noisy(0.4, 0.02, 1)},  # the run does not improve
        {"clip/any_rate": noisy(0.16, 0.01, 4)},  # something else clips from the start
    ):
        unlike: dict[str, Curve] = {**share, KL: noisy(0.001, 1e-4, 3), **changed}
        assert run(unlike, without=(LOW, HIGH)).finding("CLP001").severity == "warning"


def test_growth_against_the_own_start() -> None:
    grown = noisy(ramp(0.003, 0.06, 20, begin=20), 0.001, 1)
    flat = {"accuracy/train": noisy(0.4, 0.02, 1), "reward/mean": noisy(0.4, 0.02, 2)}
    assert ", up from 0." in run({LOW: grown, **flat}).finding("CLP001").summary
    assert run({LOW: grown}).findings("CLP001") == []  # the run improves all the same


def test_losses_that_clip_whole_sequences_have_their_own_bar() -> None:
    published = clipped(0.1, 0.05, 0.001)
    assert run(published, knobs={"loss": "gspo"}).findings("CLP001") == []
    assert run(published).finding("CLP001")
    assert run(clipped(0.2, 0.2, 2e-5), knobs={"loss": "gspo"}).findings("CLP001") == []
    assert run(clipped(0.2, 0.2, 0.1), knobs={"loss": "gspo"}).finding("CLP001")


@pytest.mark.parametrize("loss", ["cispo", "scalerl"])
def test_a_bound_on_the_weight_stops_no_gradient(loss: str) -> None:
    knobs: dict[str, Setting] = {"loss": loss}
    assert run(clipped(0.0, 0.2, 0.001), knobs=knobs).findings("CLP001") == []
    finding = run(clipped(0.0, 0.2, 0.1), knobs=knobs).finding("CLP001")
    assert finding.severity == "info"
    assert "at their bound" in finding.summary
    assert "gradient" not in finding.summary
    assert "clip-higher" not in finding.remedies


def test_a_clip_fraction_that_cannot_be_is_explained() -> None:
    why = NotApplicable("one update per batch with the learner's own log-probabilities")
    patient = run({LOW: why, HIGH: why})
    finding = patient.finding("CLP002")
    assert (finding.severity, finding.remedies) == ("info", ())
    assert "one update per batch" in finding.summary
    assert patient.why_not("CLP001") == why.why
    assert patient.why_not("CLP002") is None


@pytest.mark.parametrize("as_knob", [True, False])
def test_a_zero_that_one_update_explains_is_expected(as_knob: bool) -> None:
    curves: dict[str, Curve] = {LOW: 0, HIGH: 0, UPDATES: 1}
    patient = run(
        curves,
        without=(UPDATES,) if as_knob else (),
        knobs={"updates_per_batch": 1} if as_knob else {},
    )
    assert "expected" in patient.finding("CLP002").summary


def test_other_zeros_are_not_explained_away() -> None:
    zeros: dict[str, Curve] = {LOW: 0, HIGH: 0}
    assert run({**zeros, UPDATES: 4}).findings("CLP002") == []
    assert run(zeros, without=(UPDATES,)).findings("CLP002") == []
    sampler: dict[str, Setting] = {"old_logprobs": "sampler"}
    assert run({**zeros, UPDATES: 1}, knobs=sampler).findings("CLP002") == []


def test_absent() -> None:
    skipped = {each.code for each in run({}, without=(LOW, HIGH)).engine.diagnosis().skipped}
    assert {"CLP001", "CLP002"} <= skipped


@pytest.mark.parametrize(
    "without_signal", [{"reward/mean": 0.0}, {"groups/zero_variance_rate": 1.0}], ids=str
)
def test_clipping_without_an_advantage_is_quiet(without_signal: dict[str, Curve]) -> None:
    """A public run: a clip fraction of 1 in every step, and no reward at all."""
    patient = Patient(steps(40, {"clip/any_rate": 1.0, **without_signal}))
    assert patient.findings("CLP001") == []
    assert Patient(steps(40, {"clip/any_rate": 1.0, "reward/mean": 0.4})).findings("CLP001")


def test_many_clipped_tokens_with_one_update_are_wrong_old_logprobs() -> None:
    curves = clipped(0.15, 0.2, 0.001)
    once = run(curves, without=(KL,), knobs={"updates_per_batch": 1}).finding("CLP001")
    assert (once.remedies, once.condition) == (("recompute-old-logprobs",), "wrong-old-logprobs")
    assert "one update per batch" in once.summary
    drifting = run(clipped(0.01, 0.05, 0.02), knobs={"updates_per_batch": 1}).finding("CLP001")
    assert "and the policy moves" in drifting.summary
    often = run(curves, without=(KL,), knobs={"updates_per_batch": 4}).finding("CLP001")
    assert (often.remedies[0], often.condition) == ("fewer-updates", None)
