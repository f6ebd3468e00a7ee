import shutil

import pytest

from grpodoctor.monitor.session import Session
from tests.report.simulated import KNOBS, record_run
from tests.samples import sampled


def test_a_run_that_was_removed_is_waited_for_again(tmp_path):
    session = Session(tmp_path / "run")
    session.tick()
    assert session.snapshot().waiting
    record_run(tmp_path / "run", 5, finished=False)
    session.read_all()
    assert not session.snapshot().waiting
    shutil.rmtree(tmp_path / "run")
    session.tick()
    assert session.snapshot().waiting
    assert session.snapshot().facts.last_step is None
    record_run(tmp_path / "run", 3, run_id="second", finished=False)
    session.read_all()
    assert not session.snapshot().waiting
    assert session.snapshot().facts.last_step == 2


@pytest.mark.parametrize("last", sampled(["run.json", "events.jsonl", "rollouts", ""], 3))
def test_a_run_whose_files_vanish_one_by_one_was_removed(tmp_path, last):
    """Whatever file is left when the watch looks, the removal is news, and it is the last news."""
    path = record_run(tmp_path / "run", 5, finished=False)
    (path / "rollouts").mkdir(exist_ok=True)
    session = Session(path)
    session.read_all()
    for each in list(path.iterdir()):
        if each.name != last:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    news = session.news(session.tick())
    shutil.rmtree(path)
    news += session.news(session.tick())
    kinds = [each["kind"] for each in news if each["kind"] in ("restarted", "removed")]
    assert kinds[-1] == "removed"
    assert kinds.count("removed") == 1
    assert session.snapshot().waiting
    record_run(path, 3, run_id="second", finished=False)
    assert "removed" not in [each["kind"] for each in session.news(session.tick())]


def test_a_log_that_begins_again_is_news_once_it_has_a_step(tmp_path):
    path = record_run(tmp_path / "run", 5, finished=False)
    session = Session(path)
    session.read_all()
    for name in ("run.json", "steps.jsonl", "events.jsonl"):
        (path / name).unlink()
    assert session.news(session.tick()) == []
    record_run(path, 3, run_id="second", finished=False)
    assert session.news(session.tick())[0]["kind"] == "restarted"


@pytest.mark.parametrize("apply", ["none", "safe"])
def test_a_watch_that_begins_while_the_recorder_opens_its_directory_sees_the_run(tmp_path, apply):
    path = tmp_path / "run"
    path.mkdir()
    (path / "writer.lock").touch()  # the recorder's first file
    session = Session(path, apply=apply)
    assert session.tick().steps == 0
    record_run(path, 5)
    session.read_all()
    assert session.examination.steps == 5
    assert session.examination.manifest.model == "builtin-tiny"


def test_a_rule_that_cannot_apply_does_not_lack_data_as_in_the_report(tmp_path):
    session = Session(record_run(tmp_path / "run", 30))
    session.read_all()
    snapshot = session.snapshot()
    coverage = snapshot.report.diagnosis.coverage
    omitted = {rule.code for rule in coverage.omitted}
    assert "MOE001" in omitted  # no experts
    assert snapshot.skipped == coverage.blocked
    assert not omitted & {rule.code for rule in snapshot.skipped}
    assert len(snapshot.skipped) == coverage.rules - coverage.ran
    assert snapshot.not_applicable == len(snapshot.report.not_applicable) + len(omitted)


def test_a_finished_run_that_is_read_in_parts_is_finished(tmp_path, monkeypatch):
    """A finished run must not be treated because its end is read before its last steps."""
    run = record_run(tmp_path / "run", 60, sick_from=20)
    monkeypatch.setattr("grpodoctor.runs.reading.native_run.POLL_RECORDS", 10)
    for name in ("BLOCK", "ROW_BLOCK"):
        monkeypatch.setattr(f"grpodoctor.support.files.growing_files.{name}", 16 * 1024)
    session = Session(run, apply="unsafe")
    parts, tick = 1, session.tick(final=True)
    while tick.more:
        parts, tick = parts + 1, session.tick(final=True)
    assert session.examination.steps == 60
    assert parts > 1
    assert session.examination.finished
    assert list((run / "mailbox").glob("*")) == []


@pytest.mark.parametrize("apply", ["ask", "safe"])
def test_the_cause_that_the_verdict_names_is_treated_before_its_symptoms(tmp_path, apply):
    knobs = {**KNOBS, "sampler_sync_every": 4}
    run = record_run(tmp_path / "run", 60, sick_from=20, finished=False, knobs=knobs)
    session = Session(run, apply=apply)
    session.read_all()
    diagnosis = session.examination.report().diagnosis
    cause, *symptoms = diagnosis.problems[0].findings
    assert "REW002" in {symptom.code for symptom in symptoms}
    treatment = session.doctor.proposal if apply == "ask" else session.doctor.current
    assert treatment.finding == cause.code == diagnosis.verdict.code
    assert treatment.remedy == "sync-sampler"
    assert treatment.reason == ""


def test_a_symptom_is_treated_if_its_cause_has_no_remedy_and_that_is_said(tmp_path):
    run = record_run(tmp_path / "run", 60, sick_from=20, finished=False)
    session = Session(run, apply="ask")
    session.read_all()
    cause = session.examination.report().diagnosis.problems[0].cause
    proposal = session.doctor.proposal
    assert (proposal.finding, proposal.remedy) == ("REW002", "lower-learning-rate")
    assert proposal.reason.startswith(f"{cause.code} {cause.name} explains REW002, but no remedy")
    session.approve(proposal.id)
    sent = [file.read_text() for file in (run / "mailbox").glob("*.json")]
    assert any(f"{cause.code} {cause.name} explains REW002" in request for request in sent)
