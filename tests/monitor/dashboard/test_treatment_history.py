"""Treatments are put together from journal lines, which are untrusted."""

from grpodoctor.monitor.dashboard.treatment_history import past_treatments
from grpodoctor.monitor.report import TreatmentEntry

IDENTITY = {"treatment_id": "1-tis@62", "finding": "MIS001"}
JUDGED = {"metric": "reward/mean", "role": "target", "direction": "up", "untreated": 0.2,
          "treated": 0.4, "p": 0.01, "moved": True}  # fmt: skip


def _entry(step: int, kind: str, **body: object) -> TreatmentEntry:
    return TreatmentEntry(step, kind, "tis", {**IDENTITY, **body})


def test_a_treatment_is_followed_from_its_proposal_to_its_verdict() -> None:
    (treatment,) = past_treatments(
        [
            _entry(62, "proposed", changes={"correction": "tis_token"}),
            _entry(64, "applied", request="apply", before={"correction": "none"}),
            _entry(76, "kept", verdict="reward/mean rose", metrics=[JUDGED]),
        ]
    )
    assert treatment.state == "kept"
    assert (treatment.proposed_step, treatment.applied_step, treatment.closed_step) == (62, 64, 76)
    assert treatment.changes == {"correction": "tis_token"}
    assert treatment.before == {"correction": "none"}
    assert treatment.comparisons[0].moved
    assert treatment.verdict == "reward/mean rose"


def test_a_run_that_carries_out_the_undoing_has_undone_it() -> None:
    entries = [_entry(64, "applied", request="apply"), _entry(80, "applied", request="undo")]
    (treatment,) = past_treatments(entries)
    assert treatment.state == "undone"
    assert treatment.applied_step == 64


def test_blocks_are_no_end_of_a_treatment() -> None:
    entries = [
        _entry(64, "applied", request="apply"),
        _entry(65, "scheduled", order="0110100101", first_step=67),
        _entry(67, "switched", request="undo"),
        _entry(87, "applied", request="apply"),
    ]
    (treatment,) = past_treatments(entries)
    assert (treatment.state, treatment.applied_step, treatment.closed_step) == ("applied", 64, None)


def test_the_latest_treatment_comes_first() -> None:
    other = TreatmentEntry(90, "refused", "mis", {"treatment_id": "2", "reason": "not live"})
    treatments = past_treatments([_entry(62, "proposed"), other])
    assert [each.remedy for each in treatments] == ["mis", "tis"]
    assert treatments[0].verdict == "not live"


def test_a_damaged_line_costs_its_comparisons_only() -> None:
    damaged = [{"metric": "x"}, "no object", {**JUDGED, "p": float("nan")}, JUDGED]
    (treatment,) = past_treatments([_entry(70, "kept", metrics=damaged, changes="none")])
    assert [each.metric for each in treatment.comparisons] == ["reward/mean"]
    assert treatment.changes == {}
