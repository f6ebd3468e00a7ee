"""The doctor against a run that reacts: through the real mailbox, judged by the real tests."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from grpodoctor.remedies.engines.recompute_old_logprobs import RecomputeOldLogprobs
from grpodoctor.runs.records import Event, StepRecord
from grpodoctor.treatment.doctor import Doctor
from grpodoctor.treatment.doctor_settings import DoctorSettings
from grpodoctor.treatment.requests import Request
from grpodoctor.treatment.treatments import Treatment
from grpodoctor.vocabulary.knobs import Setting

Knobs = Mapping[str, Setting]
Admit = Callable[..., Any]


def curable(knobs: Knobs, step: int) -> dict[str, float]:
    """Old log-probabilities of the sampler: clipped before any update, and the reward decays."""
    sick = knobs["old_logprobs"] == "sampler"
    return {
        "mismatch/first_ratio_off": 0.4 if sick else 0.0,
        "reward/mean": max(0.1, 0.5 - 0.005 * step) if sick else 0.5,
    }


def incurable(knobs: Knobs, step: int) -> dict[str, float]:
    return {"mismatch/first_ratio_off": 0.4, "reward/mean": 0.5}


def harmed(knobs: Knobs, step: int) -> dict[str, float]:
    """The target moves as it should, at the price of the reward."""
    treated = knobs["old_logprobs"] == "recompute"
    return {
        "mismatch/first_ratio_off": 0.0 if treated else 0.4,
        "reward/mean": 0.2 if treated else 0.5,
    }


def test_what_helps_is_kept(patient: Admit) -> None:
    run = patient(curable)
    run.train(40)
    assert run.knobs == {**run.start, "old_logprobs": "recompute"}
    assert run.kinds() == ["proposed", "applied", "applied", "kept"]
    (kept,) = run.doctor.history
    assert kept.state == "kept"
    target = next(each for each in kept.comparisons if each.role == "target")
    assert target.untreated == pytest.approx(0.4, abs=0.05)
    assert target.treated == pytest.approx(0, abs=0.05)
    assert [stage.end for stage in kept.stages] == [kept.closed_step]


def test_the_journal_shows_the_arithmetic(patient: Admit) -> None:
    run = patient(curable)
    run.train(40)
    (proposed, applied, scheduled), kept = run.journal[:3], run.journal[-1]
    assert scheduled.body["order"].count("1") == 5
    assert proposed.body["evidence"][0]["metric"] == "mismatch/prob_diff_max"
    assert proposed.body["finding"] == "MIS001"
    assert applied.body["before"] == {"old_logprobs": "sampler"}
    assert applied.body["after"] == {"old_logprobs": "recompute"}
    assert kept.body["verdict"].startswith("mismatch/first_ratio_off falls (0.41 off, ")
    assert {each["metric"] for each in kept.body["metrics"]} == {
        "mismatch/first_ratio_off",
        "reward/mean",
    }


def test_what_does_not_help_is_undone_and_not_tried_again(patient: Admit, finding: Admit) -> None:
    run = patient(incurable, findings=lambda _: [])
    run.train(10)
    run.findings = lambda _: [finding(remedies=("recompute-old-logprobs",))]
    run.train(100)
    assert run.knobs == run.start
    assert run.kinds() == ["proposed", "applied", "applied", "undone", "stopped"]
    assert run.states() == [("recompute-old-logprobs", "undone")]
    assert "mismatch/first_ratio_off does not fall" in run.journal[-2].body["verdict"]
    assert run.journal[-3].body["request"] == "undo"


def test_the_next_remedy_follows_after_a_cool_down(patient: Admit) -> None:
    run = patient(incurable)
    run.train(200)
    assert run.states() == [("recompute-old-logprobs", "undone"), ("tis", "undone")]
    first, second = run.doctor.history
    assert second.proposed_step - first.closed_step >= run.settings.cool_down_steps
    assert run.knobs == run.start


def test_a_run_gets_at_most_four_treatments(patient: Admit, finding: Admit) -> None:
    """Others would fit, but each treatment has a chance of 5 % to be kept without an effect."""
    remedies = ("recompute-old-logprobs", "tis", "lower-learning-rate", "fewer-updates")
    more = ("clip-higher", "dynamic-sampling")
    run = patient(incurable, findings=lambda _: [finding(remedies=remedies + more)])
    run.train(450)
    assert run.states() == [(remedy, "undone") for remedy in remedies]
    assert run.knobs == run.start
    assert run.kinds()[-1] == "stopped"
    advice = run.journal[-1].body
    assert "the limit of treatments is reached" in advice["verdict"]
    assert "The best step was " in advice["verdict"]
    other, settings = run.run_dir / "other", DoctorSettings(most_treatments=5)
    other.mkdir()
    generous = patient(incurable, other, findings=run.findings, settings=settings)
    generous.train(550)
    assert [remedy for remedy, _ in generous.states()] == [*remedies, "clip-higher"]


def test_a_breached_guard_undoes_what_moved_its_target(patient: Admit, finding: Admit) -> None:
    run = patient(harmed, findings=lambda _: [finding()])
    run.train(60)
    assert run.states() == [("recompute-old-logprobs", "undone")]
    assert run.knobs == run.start
    verdict = run.doctor.history[0].verdict
    assert verdict.startswith("reward/mean falls by more than its tolerance (0.501 off, 0.2")


def test_a_finding_that_ends_is_no_reason_to_keep_a_treatment(
    patient: Admit, finding: Admit
) -> None:
    """It began at an extreme, and may have ended by itself."""
    run = patient(incurable)
    run.findings = lambda chart: [finding(active=chart.step < 12)]
    run.train(100)
    assert run.states() == [("recompute-old-logprobs", "undone")]


def test_a_target_that_is_not_read_is_undone(patient: Admit, finding: Admit) -> None:
    run = patient(lambda *_: {"length/mean": 12.0}, findings=lambda _: [finding()])
    run.train(60)
    assert run.states() == [("recompute-old-logprobs", "undone")]
    assert "too few readings" in run.doctor.history[0].verdict


def test_rare_readings_are_waited_for(patient: Admit, finding: Admit) -> None:
    def rare(knobs: Knobs, step: int) -> dict[str, float]:
        return curable(knobs, step) if step % 3 == 0 else {"length/mean": 12.0}

    run = patient(rare, findings=lambda chart: [finding()] if chart.step > 20 else [])
    run.train(80)
    (kept,) = run.doctor.history
    assert kept.state == "kept"
    assert [stage.block_steps for stage in kept.stages] == [3]


def test_it_acts_only_as_far_as_it_may(patient: Admit, finding: Admit) -> None:
    prescribed = [finding(remedies=("stop-training", "token-level-loss", "clip-higher"))]
    for apply, expected in (
        ("none", []),
        ("safe", ["clip-higher"]),
        ("unsafe", ["token-level-loss"]),
    ):
        run = patient(incurable, apply=apply, findings=lambda _: prescribed)
        run.train(7)
        assert [each.remedy for each in run.sent if each.kind == "apply"] == expected
        run.inbox.take(10**9)


def test_findings_are_treated_in_their_order(patient: Admit, finding: Admit) -> None:
    findings = [
        finding("C", severity="warning", onset=3, remedies=("recheck-reward", "fewer-updates")),
        finding("B", onset=9, remedies=("clip-higher",)),
        finding("A", severity="warning", onset=1, remedies=("sync-sampler", "tis")),
        finding("D", onset=2, remedies=("lower-learning-rate",), active=False),
        finding("E", severity="info", onset=0, remedies=("lower-learning-rate",)),
    ]
    run = patient(incurable, findings=lambda _: findings)
    run.train(260)
    assert [each.finding for each in run.doctor.history] == ["C", "B", "A"]
    assert run.states()[0] == ("fewer-updates", "undone")


def test_overlapping_remedies_are_not_stacked(patient: Admit, finding: Admit) -> None:
    """A kept treatment holds its slots for as long as it is in force."""
    run = patient(curable, apply="unsafe")
    findings = [finding(remedies=("recompute-old-logprobs",))]
    run.findings = lambda chart: [replace(each, last_step=chart.step) for each in findings]
    run.train(40)
    assert run.states() == [("recompute-old-logprobs", "kept")]
    findings[:] = [finding(remedies=("tis",))]
    run.train(60)
    assert len(run.doctor.history) == 1
    assert run.knobs["correction"] == "none"
    run.chart.observe(StepRecord(run.step + 1, {}, {"old_logprobs": "sampler"}))
    run.step += 1
    run.knobs["old_logprobs"] = "sampler"
    run.train(40)
    assert [remedy for remedy, _ in run.states()] == ["recompute-old-logprobs", "tis"]


def test_a_finding_that_was_last_seen_before_a_kept_treatment_is_not_treated(
    patient: Admit, finding: Admit
) -> None:
    """It may be cured: a finding resolves some quiet steps after its last sighting."""
    run = patient(curable)
    cause = finding(remedies=("recompute-old-logprobs",))
    symptom = finding("KLD001", remedies=("lower-learning-rate",), severity="warning")
    run.findings = lambda _: [cause, symptom]
    run.train(100)
    assert run.states() == [("recompute-old-logprobs", "kept")]
    assert not run.doctor.is_stopped
    run.findings = lambda chart: [replace(symptom, last_step=chart.step)]
    run.train(2)
    assert run.doctor.current.remedy == "lower-learning-rate"


def test_a_worse_finding_does_not_interrupt(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda _: [finding(severity="warning")])
    run.train(8)
    assert run.doctor.current.state == "applied"
    worse = finding("OPT001", onset=1, remedies=("lower-learning-rate",))
    run.findings = lambda _: [finding(), worse]
    run.train(5)
    assert run.doctor.current.remedy == "recompute-old-logprobs"
    assert {each.remedy for each in run.sent if each.kind == "apply"} == {"recompute-old-logprobs"}


def test_what_the_run_refuses_is_passed_over(patient: Admit) -> None:
    run = patient(incurable)
    run.train(6)
    del run.knobs["old_logprobs"]
    run.train(30)
    refused, *_ = run.doctor.history
    assert (refused.remedy, refused.state) == ("recompute-old-logprobs", "refused")
    assert "this run cannot change the knob old_logprobs" in refused.verdict
    assert run.kinds()[:2] == ["proposed", "refused"]
    assert "tis" in {each.remedy for each in run.sent}


def test_a_run_that_does_not_answer_is_given_up(patient: Admit, finding: Admit) -> None:
    run = patient(incurable, deaf=True, findings=lambda _: [finding()])
    run.train(120)
    assert run.states() == [("recompute-old-logprobs", "forgotten")]
    assert run.doctor.history[0].verdict == "the run did not answer"
    assert run.doctor.current is None


def test_a_late_answer_is_taken_back(patient: Admit, finding: Admit) -> None:
    quick = DoctorSettings(answer_steps=20)
    run = patient(incurable, deaf=True, findings=lambda _: [finding()], settings=quick)
    run.train(40)
    run.deaf = False
    run.train(3)
    assert run.knobs == run.start
    assert run.kinds() == ["proposed", "applied", "forgotten", "applied"]
    run.new_doctor()
    run.train(3)
    assert sum(each.id.endswith("/undo") for each in run.sent) == 1


def test_an_undo_that_is_refused_is_said_to_be(patient: Admit, finding: Admit) -> None:
    run = patient(incurable, findings=lambda _: [finding()])
    run.train(12)
    del run.knobs["old_logprobs"]
    run.train(100)
    (lost,) = run.doctor.history
    assert lost.state == "forgotten"
    assert "the run refused to undo it: this run cannot change the knob" in lost.verdict
    assert run.kinds()[-1] == "forgotten"


@pytest.mark.parametrize("stop", [1, 6, 7, 8, 13, 18, 19, 20, 21, 22, 40])
@pytest.mark.parametrize("course", [curable, incurable])
def test_a_watch_that_restarts_goes_on_where_it_was(
    patient: Admit, stop: int, course: Callable[..., Any], finding: Admit
) -> None:
    run = patient(course, findings=lambda _: [finding()])
    run.train(stop)
    before = run.doctor.current
    run.new_doctor()
    run.train(1)
    if before is not None and run.doctor.current is not None:
        assert run.doctor.current.id == before.id
        assert run.doctor.current.before == before.before
    run.train(120)
    assert [state for _, state in run.states()] == ["kept" if course is curable else "undone"]
    assert run.kinds().count("proposed") == 1
    assert run.kinds().count("kept" if course is curable else "undone") == 1


def test_a_note_that_was_lost_is_written_after_all(patient: Admit, finding: Admit) -> None:
    """The watch died between the run's undoing and the note that says why."""
    run = patient(incurable, findings=lambda _: [finding()])
    while run.doctor.current is None or run.doctor.current.state != "undoing":
        run.train(1)
    run.train(1, watched=False)
    assert run.kinds() == ["proposed", "applied", "applied"]
    run.new_doctor()
    run.train(2)
    assert run.kinds() == ["proposed", "applied", "applied", "undone"]


def test_a_run_that_goes_back_is_treated_anew(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda _: [finding()])
    run.train(9)
    assert run.doctor.current.state == "applied"
    run.step, run.knobs = 3, dict(run.start)
    run.journal.append(Event("resumed", 3))
    run.train(1)
    (forgotten,) = run.doctor.history
    assert forgotten.state == "forgotten"
    assert "resumed" in forgotten.verdict
    run.chart.knobs.update(run.knobs)
    run.train(60)
    assert run.states()[-1] == ("recompute-old-logprobs", "kept")


def test_steps_that_go_back_are_noticed_without_an_event(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda _: [finding()])
    run.train(9)
    run.step = 3
    run.train(1)
    (forgotten,) = run.doctor.history
    assert "rewound to step 4" in forgotten.verdict


def test_a_treatment_of_another_observer_is_respected(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda _: [finding()])
    run.train(10)
    other = copy.copy(run)
    other.new_doctor()
    other.train(3)
    ours, theirs = run.doctor.current, other.doctor.current
    assert (theirs.id, theirs.stages) == (ours.id, ours.stages)
    assert run.kinds() == ["proposed", "applied"]


def test_what_was_kept_and_is_taken_back_by_hand_is_undone(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda _: [finding()])
    run.train(30)
    (kept,) = run.doctor.history
    run.mailbox.send(Request("hand", "undo", kept.id, kept.remedy, kept.before))
    run.train(3)
    assert run.states() == [("recompute-old-logprobs", "undone")]
    assert run.kinds()[-1] == "undone"
    assert run.knobs == run.start


def test_two_watches_that_know_nothing_of_each_other(patient: Admit, finding: Admit) -> None:
    """Both propose before the run looks into its mailbox; one treatment is left, and judged."""
    run = patient(curable, deaf=True, findings=lambda _: [finding()])
    run.train(7)
    first = run.doctor
    run.findings = lambda _: [finding(remedies=("lower-learning-rate",))]
    run.new_doctor()
    run.train(1)
    run.deaf = False
    run.train(1)
    assert run.kinds() == ["proposed", "applied", "proposed", "applied"]
    run.train(3)
    assert first.current is not None
    assert run.doctor.current.remedy == "lower-learning-rate"
    assert run.knobs["old_logprobs"] == "sampler"
    assert "another treatment was in progress" in run.doctor.history[0].verdict


def test_a_second_treatment_is_taken_back_at_once(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda _: [finding()])
    run.train(9)
    other = Request("x", "apply", "9-clip-higher@9", "clip-higher", {"clip_high": 0.28})
    run.mailbox.send(other)
    run.train(3)
    assert run.knobs["clip_high"] == 0.2
    assert run.doctor.current.remedy == "recompute-old-logprobs"
    assert run.states() == [("clip-higher", "forgotten")]


def test_what_another_watch_began_is_judged_when_ours_is_refused(
    patient: Admit, finding: Admit
) -> None:
    """A watch died after asking; the next one asks for the same before the run answers either."""
    run = patient(curable, deaf=True, findings=lambda _: [finding()])
    run.train(7)
    run.new_doctor()
    run.train(1)
    run.deaf = False
    run.train(60)
    assert run.kinds() == ["proposed", "applied", "proposed", "refused", "applied", "kept"]
    assert run.states() == [
        ("recompute-old-logprobs", "refused"),
        ("recompute-old-logprobs", "kept"),
    ]


def test_a_restart_ends_what_was_begun_by_either(patient: Admit, finding: Admit) -> None:
    run = patient(curable, deaf=True, findings=lambda _: [finding()])
    run.train(8)
    stray = Treatment("1-tis@2", "tis", "", {"correction": "tis_token"}, {"correction": "none"}, 2)
    run.journal.append(Event("treatment-applied", 8, stray.body()))
    run.journal.append(Event("resumed", 3))
    run.train(1)
    assert {state for _, state in run.states()} == {"forgotten"}
    assert len(run.doctor.history) == 2


def test_a_run_that_went_back_is_not_rested_for_too_long(patient: Admit, finding: Admit) -> None:
    run = patient(incurable, findings=lambda _: [finding(remedies=("tis", "clip-higher"))])
    while run.states() != [("tis", "undone")]:
        run.train(1)
    run.step = 2
    run.train(run.settings.cool_down_steps + 2)
    assert run.doctor.current.remedy == "clip-higher"


def test_a_run_started_anew_is_given_every_remedy_again(patient: Admit, finding: Admit) -> None:
    run = patient(incurable, findings=lambda _: [finding()])
    run.train(100)
    assert run.doctor.is_stopped
    run.journal.append(Event("started", 0))
    run.train(2)
    assert run.doctor.current.remedy == "recompute-old-logprobs"


def test_what_needs_a_restart_is_not_asked_of_a_live_run(patient: Admit, finding: Admit) -> None:
    class AtRestart(RecomputeOldLogprobs):
        in_flight = False

    run = patient(incurable, findings=lambda _: [finding()])
    run.doctor = Doctor([AtRestart()], "unsafe")
    run.train(20)
    assert run.sent == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"treatment_id": 7, "remedy": ["x"], "changes": "clip_high"},
        {"treatment_id": "t", "remedy": "clip-higher", "changes": {"clip_high": [1]}},
        {"treatment_id": "t", "remedy": "unheard-of", "changes": {"clip_high": 1.0}},
        {"treatment_id": "t", "remedy": "clip-higher", "changes": {"clip_high": 0.3}},
        {"treatment_id": "t", "remedy": "clip-higher", "changes": {"rm -rf": 1}, "before": {}},
    ],
)
def test_a_journal_that_anybody_wrote_is_not_believed(patient: Admit, body: dict[str, Any]) -> None:
    run = patient(incurable, findings=lambda _: [])
    for kind in ("proposed", "applied", "refused", "kept", "undone", "forgotten"):
        run.journal.append(Event(f"treatment-{kind}", 1, body))
    run.train(30)
    assert run.doctor.current is None
    assert run.sent == []


def test_progress_is_shown(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda chart: [finding()] if chart.step > 10 else [])
    run.train(5)
    assert run.doctor.progress(run.chart) is None
    run.train(18)
    progress = run.doctor.progress(run.chart)
    assert progress.treatment.remedy == "recompute-old-logprobs"
    assert (progress.waited, progress.patience) == (12, 23)
    assert progress.metric == "mismatch/first_ratio_off"
    assert progress.untreated == pytest.approx(0.4, abs=0.05)
    assert progress.treated == pytest.approx(0.0, abs=0.1)


def test_settings_are_bounded() -> None:
    with pytest.raises(ValueError, match="less than or equal to 12"):
        DoctorSettings(block_steps=13)
    with pytest.raises(ValueError, match="Extra inputs"):
        DoctorSettings(wait_steps=12)  # type: ignore[call-arg]


def test_a_poll_may_bring_many_steps_at_once(patient: Admit, finding: Admit) -> None:
    run = patient(curable, findings=lambda _: [finding()])
    for _ in range(12):
        run.train(9, watched=False)
        run.watch()
    assert run.states() == [("recompute-old-logprobs", "kept")]


def test_the_doctor_reads_no_clock(patient: Admit, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for offset in (0.0, 1e9):
        monkeypatch.setattr("time.time", lambda offset=offset: offset)
        run = patient(incurable)
        run.train(80)
        runs.append([(each.id, each.state, each.verdict) for each in run.doctor.history])
    assert runs[0] == runs[1]
