"""Treatments that a person approves: nothing is sent before, and a proposal never times out."""

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.treatment.doctor_settings import DoctorSettings
from tests.treatment.test_doctor import curable, incurable


def approve(run, treatment_id=None):
    proposal = run.doctor.proposal
    for request in run.doctor.approve(treatment_id or proposal.id, run.step):
        run.mailbox.send(request)


def test_a_proposal_waits_for_ever_and_sends_nothing(patient):
    run = patient(incurable, apply="ask", settings=DoctorSettings(answer_steps=1))
    run.train(12)
    first = run.doctor.proposal
    assert first.remedy == "recompute-old-logprobs"
    run.train(200)
    assert run.doctor.proposal == first
    assert (run.sent, run.journal, run.doctor.current) == ([], [], None)
    assert run.knobs == run.start


def test_an_approved_treatment_is_applied_and_judged(patient):
    run = patient(curable, apply="ask")
    run.train(60)
    assert run.kinds() == []
    approve(run)
    assert run.doctor.proposal is None
    run.train(40)
    assert run.kinds() == ["proposed", "applied", "applied", "kept"]
    assert run.knobs["old_logprobs"] == "recompute"
    # The run answers after the approval, however long the proposal had waited.
    assert run.journal[0].step == 60


def test_a_declined_remedy_is_not_proposed_again(patient):
    run = patient(incurable, apply="ask")
    run.train(20)
    run.doctor.decline(run.doctor.proposal.id)
    assert run.doctor.proposal is None
    run.train(1)
    assert run.doctor.proposal.remedy == "tis"
    run.doctor.decline(run.doctor.proposal.id)
    run.train(5)
    assert run.doctor.proposal is None
    assert run.journal == []


def test_only_the_treatment_that_was_seen_can_be_approved(patient):
    run = patient(incurable, apply="ask")
    with pytest.raises(ConfigError, match="no longer proposed"):
        run.doctor.approve("1-tis@3", 3)
    run.train(20)
    seen = run.doctor.proposal.id
    run.doctor.decline(seen)
    run.train(1)
    for late in (run.doctor.decline, lambda name: run.doctor.approve(name, 21)):
        with pytest.raises(ConfigError, match="no longer proposed"):
            late(seen)
    assert run.doctor.proposal.remedy == "tis"


def test_a_proposal_is_withdrawn_with_its_finding(patient, finding):
    run = patient(incurable, apply="ask")
    run.findings = lambda chart: [finding(active=chart.step < 30)]
    run.train(29)
    assert run.doctor.proposal is not None
    run.train(1)
    assert run.doctor.proposal is None


def test_a_proposal_is_withdrawn_when_someone_else_changes_its_knob(patient):
    run = patient(incurable, apply="ask")
    run.train(20)
    assert run.doctor.proposal.remedy == "recompute-old-logprobs"
    run.knobs["old_logprobs"] = run.chart.knobs["old_logprobs"] = "recompute"
    run.train(1)
    assert run.doctor.proposal.remedy == "tis"


def test_a_restarted_run_has_no_old_proposal(patient):
    from grpodoctor.runs.records import Event

    run = patient(incurable, apply="ask")
    run.train(20)
    run.doctor.read_events([Event("resumed", 20, {})])
    assert run.doctor.proposal is None


def test_a_cause_takes_the_place_of_its_symptom(patient, finding):
    symptom = finding("REW002", remedies=("lower-learning-rate",))
    cause = finding("MIS002", remedies=("recompute-old-logprobs",), severity="warning", onset=12)
    run = patient(incurable, apply="ask")
    run.findings = lambda chart: [cause, symptom] if chart.step >= 20 else [symptom]
    run.causes = lambda chart: {"REW002": cause} if chart.step >= 20 else {}
    run.train(19)
    seen = run.doctor.proposal
    assert (seen.finding, seen.reason) == ("REW002", "")
    run.train(1)
    assert run.doctor.proposal.finding == "MIS002"
    assert run.doctor.proposal.reason == ""
    with pytest.raises(ConfigError, match="no longer proposed"):
        run.doctor.approve(seen.id, run.step)
    run.doctor.decline(run.doctor.proposal.id)
    run.train(1)
    # Without a remedy of the cause, the symptom is treated, and the proposal says so.
    assert run.doctor.proposal.finding == "REW002"
    assert "MIS002 mis002 explains REW002, but no remedy of it" in run.doctor.proposal.reason


def test_a_proposal_learns_of_a_cause_without_a_remedy(patient, finding):
    symptom = finding("REW002", remedies=("lower-learning-rate",))
    cause = finding("SYN008", remedies=("check-weight-sync",))
    run = patient(incurable, apply="ask", findings=lambda _: [cause, symptom])
    run.causes = lambda chart: {"REW002": cause} if chart.step >= 20 else {}
    run.train(19)
    first = run.doctor.proposal
    run.train(1)
    assert run.doctor.proposal.id == first.id
    assert "SYN008" in run.doctor.proposal.reason
    approve(run)
    run.train(1)
    proposed = next(event for event in run.journal if event.kind == "treatment-proposed")
    assert "SYN008 syn008 explains REW002" in proposed.body["reason"]
